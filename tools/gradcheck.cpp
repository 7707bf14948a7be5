// bonsai gradcheck CONFIG: the gradients of the whole model in float64, against differences.
#include "framework/checks/gradcheck.h"

#include <fmt/format.h>

#include "tools/command.h"
#include "trainers/loop.h"

namespace bonsai {

void add_gradcheck(CLI::App& program) {
  struct Arguments : ConfigArguments {
    int64_t samples = 4, tokens = 16;
  };
  auto a = std::make_shared<Arguments>();
  CLI::App* command = program.add_subcommand("gradcheck", "check every parameter's gradient in float64");
  a->add_to(*command);
  command->add_option("--samples", a->samples, "elements checked of each parameter; 0 for all")->transform(whole_number(0));
  command->add_option("--tokens", a->tokens, "length of the random sequence")->transform(whole_number(1));
  command->callback([a] {
    RunConfig config = a->load();
    if (config.model.vocab_size == 0) config.model.vocab_size = 65;
    Module root({.dtype = DType::f64, .seed = static_cast<uint64_t>(config.trainer.seed)});
    Decoder decoder{&root, "", config.model};
    const int64_t time = std::min(a->tokens, config.model.block_size);
    std::vector<int32_t> ids(static_cast<size_t>(time));
    for (size_t i = 0; i < ids.size(); ++i)
      ids[i] = static_cast<int32_t>(random_uniform(random_key(1, "gradcheck ids"), i) * static_cast<double>(config.model.vocab_size));
    const auto f = [&](const std::vector<Tensor>& in) {
      Context context{.training = true, .random = {.seed = 1}};  // the same dropout each time
      return decoder(in[0], context);
    };
    const GradcheckReport report =
        gradcheck(a->path, f, {from<int32_t>({1, time}, ids)}, decoder.parameters(), {.samples = a->samples});
    fmt::print("{}", report.text());
    if (!report.passed()) throw CLI::RuntimeError(1);
  });
}

}  // namespace bonsai
