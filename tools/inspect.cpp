// bonsai inspect CONFIG|CHECKPOINT: prints parameters, shapes, floating-point operations and memory of a
// model, or the attention weights of a trained one.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "bonsai/framework/config/yaml.h"
#include "bonsai/framework/core/quote.h"
#include "bonsai/layers/model/transformer.h"
#include "bonsai/tools/command.h"
#include "bonsai/trainers/loop.h"

namespace bonsai {
namespace {

// Floating-point operations per token, forward and backward.
double flops_per_token(const TransformerKeys& m, const ModelConfig& config, double total) {
  const int64_t tables = m.n_encoder_layers > 0 ? 2 : 1;  // number of tables of learned positions
  const auto embeddings =
      static_cast<double>(m.position == "learned" ? tables * config.block_size * m.d_model : 0) +
      static_cast<double>(m.tie_embeddings ? 0 : config.vocab_size * m.d_model);
  // A position of a decoder sees half of the block on average; one of an encoder, or of cross-attention, all.
  const int64_t halves = m.n_layers + 2 * (m.n_encoder_layers > 0 ? m.n_layers + m.n_encoder_layers : 0);
  return 6 * (total - embeddings) + 6 * static_cast<double>(halves * config.block_size * m.d_model);
}

void print_model(Model& model, const RunConfig& config) {
  int64_t total = 0, decayed = 0, decayed_tensors = 0, others = 0;
  fmt::print("{:<40} {:<16} {:>10}  decay\n", "parameter", "shape", "elements");
  for (Parameter* p : model.parameters()) {
    fmt::print("{:<40} {:<16} {:>10}  {}\n", p->path, p->value.shape().str(), p->value.elements(),
               p->decay ? "yes" : "no");
    total += p->value.elements();
    p->decay ? ++decayed_tensors, decayed += p->value.elements() : ++others;
  }
  const double bytes = static_cast<double>(total) * (config.trainer.dtype == "f64" ? 8 : 4);
  fmt::print("\n{} parameters; {} tensors with weight decay ({} elements), {} without\n", total,
             decayed_tensors, decayed, others);
  if (const auto* keys = config.model.kind.find<TransformerKeys>())
    fmt::print("{:.3g} floating-point operations a token{}, forward and backward\n",
               flops_per_token(*keys, config.model, static_cast<double>(total)),
               keys->n_encoder_layers > 0 ? " and its token of the source" : "");
  const double state =
      static_cast<double>(state_elements(config.optimizer, model.parameters())) / static_cast<double>(total);
  fmt::print("{:.1f} MiB of weights, {:.1f} MiB with gradients and the state of {}\n", bytes / 1048576,
             (2 + state) * bytes / 1048576, config.optimizer.kind.name());
}

// Prints each query's weights as a row of shades. The largest weight of the map has the darkest shade.
void print_heat_map(const std::string& title, const std::vector<std::string>& queries,
                    const std::vector<std::string>& keys, std::span<const double> weights) {
  constexpr const char* kShades[] = {" ", "\u2591", "\u2592", "\u2593", "\u2588"};
  const size_t n = keys.size();
  const double most = *std::max_element(weights.begin(), weights.end());
  fmt::print("{}  (", title);
  for (int i = 1; i <= 4; ++i)
    fmt::print("{} to {:.3g}{}", kShades[i], most * i / 4, i < 4 ? ", " : ")\n    ");
  for (const std::string& key : keys) fmt::print("{} ", key);
  fmt::print("\n");
  for (size_t i = 0; i < queries.size(); ++i) {
    fmt::print("  {} ", queries[i]);
    for (const double w : weights.subspan(i * n, n)) {
      const char* shade =
          kShades[static_cast<size_t>(std::min(4.0, std::ceil(4 * w / std::max(most, 1e-30) - 1e-9)))];
      fmt::print("{}{}", shade, shade);
    }
    fmt::print("\n");
  }
}

std::vector<std::string> tokens_of(const Tensor& ids, const Tokenizer& tokenizer) {
  std::vector<std::string> tokens;
  for (const int32_t id : ids ? ids.span<int32_t>() : std::span<const int32_t>())
    tokens.push_back(tokenizer.decode(std::vector<int32_t>{id}));
  return tokens;
}

// The input of the model for a text. If the text is a source, the decoder reads the generated answer.
Batch reading(LoadedModel& model, const std::string& text) {
  const int64_t most = model.model->block_size();
  Batch batch = prompt_of(model, "--attention", text);
  if (batch.inputs.size(1) > most)
    throw ConfigError(
        fmt::format("--attention has {} tokens, more than block_size {}", batch.inputs.size(1), most));
  if (!batch.source) return batch;
  const auto written = written_by(model, batch, most, {.temperature = 0});
  batch.inputs = from<int32_t>({1, static_cast<int64_t>(written.size())}, written);
  return batch;
}

// Prints the attention weights of the model for this text.
void print_attention(LoadedModel& model, const std::string& text, const std::string& layer, bool json) {
  const Batch batch = reading(model, text);
  std::map<std::string, Tensor> weights;
  Context context;
  context.source = source_of(batch), context.weights = &weights;
  (*model.model)(batch.inputs, context);
  if (weights.empty()) throw ConfigError("--attention: no layer of the model gives attention weights");
  if (!layer.empty() && !weights.contains(layer))
    throw ConfigError(fmt::format("--layer: no attention layer is called {}", layer));

  const Tokenizer& tokenizer = *model.checkpoint.tokenizer();
  std::vector<std::string> tokens = tokens_of(batch.inputs, tokenizer),
                           source = tokens_of(batch.source, tokenizer);
  nlohmann::ordered_json all = {{"tokens", tokens}};
  if (batch.source) all["source"] = source;
  for (auto* list : {&tokens, &source})
    for (std::string& token : *list) token = token == "\n" ? "\u21b5" : escaped(token);
  for (const auto& [path, tensor] : weights) {
    if (!layer.empty() && path != layer) continue;
    const bool in_encoder = path.starts_with("encoder."),
               to_source = in_encoder || path.ends_with("cross_attention");
    const auto &queries = in_encoder ? source : tokens, &keys = to_source ? source : tokens;
    const std::vector<double> values = tensor.values();
    check(std::all_of(values.begin(), values.end(), [](double w) { return std::isfinite(w); }), path,
          "its attention weights are not finite; the model has diverged, use an earlier checkpoint");
    const size_t n = queries.size(), m = keys.size(), heads = static_cast<size_t>(tensor.size(1));
    for (size_t h = 0; h < heads; ++h) {
      const std::span head(values.data() + h * n * m, n * m);
      if (!json) print_heat_map(fmt::format("{} head {}", path, h), queries, keys, head);
      nlohmann::ordered_json rows;
      for (size_t i = 0; json && i < n; ++i)
        rows.push_back(std::vector<double>(head.begin() + static_cast<int64_t>(i * m),
                                           head.begin() + static_cast<int64_t>((i + 1) * m)));
      if (json) all["weights"][path].push_back(rows);
    }
  }
  if (json) fmt::print("{}\n", all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace

void add_inspect(CLI::App& program) {
  struct Arguments : ConfigArguments {
    std::string text, layer;
    bool json = false;
  };
  auto a = std::make_shared<Arguments>();
  CLI::App* command = program.add_subcommand(
      "inspect", "print parameters, shapes, operations and memory of a config or checkpoint");
  a->add_to(*command);
  CLI::Option* attention =
      command
          ->add_option("--attention", a->text, "for a checkpoint: print the attention weights for this text")
          ->check(not_empty());
  command->add_option("--layer", a->layer, "print only the weights of this layer: block.0.attention")
      ->needs(attention)
      ->check(not_empty());
  command->add_flag("--json", a->json, "print the weights as JSON")->needs(attention);
  command->callback([a] {
    const std::filesystem::path path(a->path);
    if (!std::filesystem::is_directory(path) && !is_checkpoint_file(path)) {
      if (!a->text.empty())
        throw ConfigError("--attention needs a trained model, and " + a->path + " is a config");
      RunConfig config = a->load();
      prepare_data_or_vocabulary(config);
      Module root({.shapes_only = true});
      print_model(*config.model.make(&root), config);
    } else {
      if (!a->settings.empty() || !a->device.empty() || a->threads >= 0)
        throw ConfigError("--set, --device and --threads are for a config, and " + a->path +
                          " is a checkpoint");
      LoadedModel model(a->path);
      if (!a->text.empty()) return print_attention(model, a->text, a->layer, a->json);
      const Progress& progress = model.checkpoint.progress();
      fmt::print("{}: step {}, {}\n\n", model.checkpoint.file().string(), progress.step,
                 std::isfinite(progress.best_loss)
                     ? fmt::format("best validation loss {:.4f}", progress.best_loss)
                     : "not evaluated yet");
      print_model(*model.model, model.checkpoint.config());
    }
  });
}

}  // namespace bonsai
