// bonsai gradcheck CONFIG: the gradients of the whole model and of each layer in float64, against
// differences.
#include <fmt/format.h>

#include <algorithm>

#include "bonsai/framework/backend/backend.h"
#include "bonsai/framework/config/yaml.h"
#include "bonsai/layers/check_model.h"
#include "bonsai/tools/command.h"

namespace bonsai {
namespace {

bool has_path(const Module& module, const std::string& path) {
  return module.path() == path || std::any_of(module.children().begin(), module.children().end(),
                                              [&](const Module* m) { return has_path(*m, path); });
}

Tensor some_ids(const char* name, int64_t time, int64_t vocabulary, Device device) {
  std::vector<int32_t> ids(static_cast<size_t>(time));
  for (size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<int32_t>(random_uniform(random_key(1, name), i) * static_cast<double>(vocabulary));
  return from<int32_t>({1, time}, ids, device);
}

}  // namespace

void add_gradcheck(CLI::App& program) {
  struct Arguments : ConfigArguments {
    GradcheckOptions options;
    std::string layer;
    int64_t tokens = 4;
  };
  auto a = std::make_shared<Arguments>();
  CLI::App* command =
      program.add_subcommand("gradcheck", "check every gradient of the model and its layers in float64");
  a->add_to(*command);
  command->add_option("--layer", a->layer, "only this layer and those in it: block.0.mlp")
      ->check(not_empty());
  command->add_option("--full", a->options.in_full, "elements up to which a tensor is checked in each")
      ->transform(whole_number(0));
  command->add_option("--samples", a->options.samples, "elements checked of a larger one")
      ->transform(whole_number(0));
  command
      ->add_option("--directions", a->options.directions,
                   "random directions of a larger one, and of the whole model")
      ->transform(whole_number(1));
  command->add_option("--tokens", a->tokens, "length of the random sequence")->transform(whole_number(2));
  command->callback([a] {
    RunConfig config = a->load();
    prepare_data_or_vocabulary(config);
    ModelConfig& keys = config.model;
    if (const double count = parameter_count(keys); count > kLargeModel) {
      constexpr int64_t kTokens = 1024;
      fmt::print("{:.1f} million parameters:", count / 1e6);
      if (a->layer.empty()) {
        fmt::print(" checked with one block of each kind");
        keys = shortened(keys, 1);
      }
      if (keys.vocab_size > kTokens)
        fmt::print("{} of {} tokens", a->layer.empty() ? " and 1024" : " checked with 1024",
                   keys.vocab_size);
      fmt::print("\n");
      keys.vocab_size = std::min(kTokens, keys.vocab_size);
    }
    const Device device = config.device.device();
    open_device(device);
    Module root({.dtype = DType::f64, .device = device, .seed = static_cast<uint64_t>(config.trainer.seed)});
    const std::unique_ptr<Model> model = keys.make(&root);
    if (!a->layer.empty() && !has_path(*model, a->layer))
      throw ConfigError(fmt::format("{}: the model has no layer {}", a->path, a->layer));
    const int64_t time = std::min(a->tokens, keys.block_size);
    const Tensor ids = some_ids("gradcheck ids", time, keys.vocab_size, device);
    Context context{.training = true, .random = {.seed = 1}};
    if (model->reads_source()) {  // one longer than the target, its last token padding
      const int64_t source = std::min(a->tokens + 1, keys.block_size);
      std::vector<int32_t> padding_mask(static_cast<size_t>(source), 1);
      padding_mask.back() = source == 1;
      context.source = {.ids = some_ids("gradcheck source", source, keys.vocab_size, device),
                        .padding_mask = from<int32_t>({1, source}, padding_mask, device)};
    }
    const ModelCheckOptions options{
        .gradcheck = a->options, .layer = a->layer, .progress = [](const std::string& text) {
          fmt::print("{}", text);
          std::fflush(stdout);
        }};
    const ModelCheck check = check_model(a->path, *model, ids, context, options);
    fmt::print("{}", check.text());
    if (!check.passed()) throw CLI::RuntimeError(1);
  });
}

}  // namespace bonsai
