// bonsai gradcheck CONFIG: compares the gradients of the whole model and of each layer with finite
// differences in f64. Without CONFIG: runs all checks of the op table, which also has the ops of added parts.
#include <fmt/format.h>

#include <algorithm>

#include "bonsai/framework/backend/backend.h"
#include "bonsai/framework/checks/check_op.h"
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

// Returns whether all rows of the op, or of all ops if the name is empty, pass.
bool check_ops(const std::string& op) {
  size_t checked = 0, failed = 0;
  std::vector<std::string> names;
  for (const OpCase& row : op_cases()) {
    names.push_back(row.op);
    if (!op.empty() && op != row.op) continue;
    const OpReport report = check_op(row);
    fmt::print("{}", report.text());
    std::fflush(stdout);
    ++checked, failed += !report.passed();
  }
  if (checked == 0) {
    const std::string* meant = nearest_word(op, names);
    throw ConfigError(fmt::format("the op table has no {}; {}", op,
                                  meant ? "did you mean " + *meant + "?" : "add_op_case() adds a row"));
  }
  fmt::print("{} rows of the op table, {} failed\n", checked, failed);
  return failed == 0;
}

}  // namespace

void add_gradcheck(CLI::App& program) {
  struct Arguments : ConfigArguments {
    GradcheckOptions options;
    std::string layer, op;
    int64_t tokens = 4;
  };
  auto a = std::make_shared<Arguments>();
  CLI::App* command =
      program.add_subcommand("gradcheck", "check every gradient of a model and its layers, or of all ops");
  CLI::Option* config =
      a->add_to(*command)->required(false)->description("YAML file; without it, all ops are checked");
  command->add_option("--layer", a->layer, "check only this layer and its children: block.0.mlp")
      ->check(not_empty());
  command
      ->add_option("--full", a->options.in_full,
                   "largest number of elements of a tensor that is checked in full")
      ->transform(whole_number(0));
  command->add_option("--samples", a->options.samples, "number of elements checked in a larger tensor")
      ->transform(whole_number(0));
  command
      ->add_option("--directions", a->options.directions,
                   "number of random directions for a larger tensor and for the whole model")
      ->transform(whole_number(1));
  command->add_option("--tokens", a->tokens, "length of the random sequence")->transform(whole_number(2));
  for (CLI::Option* option : command->get_options())
    if (option != config && option->get_name() != "--help") option->needs(config);
  command->add_option("--op", a->op, "without a config: check only this op")
      ->check(not_empty())
      ->excludes(config);
  command->callback([a] {
    if (a->path.empty()) {
      if (!check_ops(a->op)) throw CLI::RuntimeError(1);
      return;
    }
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
    if (model->reads_source()) {  // one token longer than the target; the last one is padding
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
