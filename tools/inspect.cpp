// bonsai inspect CONFIG|CHECKPOINT: parameters, shapes, floating-point operations, memory.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "framework/config/yaml.h"
#include "tools/command.h"
#include "trainers/loop.h"

namespace bonsai {
namespace {

void print_model(Decoder& decoder, const RunConfig& config) {
  int64_t total = 0, decayed = 0, decayed_tensors = 0, others = 0;
  fmt::print("{:<40} {:<16} {:>10}  decay\n", "parameter", "shape", "elements");
  for (Parameter* p : decoder.parameters()) {
    fmt::print("{:<40} {:<16} {:>10}  {}\n", p->path, p->value.shape().str(), p->value.elements(),
               p->decay ? "yes" : "no");
    total += p->value.elements();
    p->decay ? ++decayed_tensors, decayed += p->value.elements() : ++others;
  }
  const DecoderConfig& m = config.model;
  const auto embeddings = static_cast<double>(m.position == "learned" ? m.block_size * m.d_model : 0) +
                          static_cast<double>(m.tie_embeddings ? 0 : m.vocab_size * m.d_model);
  const double flops = 6 * (static_cast<double>(total) - embeddings) +
                       6 * static_cast<double>(m.n_layers * m.block_size * m.d_model);
  const double bytes = static_cast<double>(total) * (config.trainer.dtype == "f64" ? 8 : 4);
  fmt::print("\n{} parameters; {} tensors with weight decay ({} elements), {} without\n", total,
             decayed_tensors, decayed, others);
  fmt::print("{:.3g} floating-point operations a token, forward and backward\n", flops);
  fmt::print("{:.1f} MiB of weights, {:.1f} MiB with gradients and moments\n", bytes / 1048576,
             4 * bytes / 1048576);
}

// Each query's weights as a row of shades; a full block is the largest of the row.
void print_heat_map(const std::vector<std::string>& tokens, const std::string& title,
                    std::span<const double> weights) {
  constexpr const char* kShades[] = {" ", "\u2591", "\u2592", "\u2593", "\u2588"};
  const size_t n = tokens.size();
  fmt::print("{}\n    ", title);
  for (const std::string& token : tokens) fmt::print("{} ", token);
  fmt::print("\n");
  for (size_t i = 0; i < n; ++i) {
    const auto row = weights.subspan(i * n, n);
    const double most = std::max(1e-30, *std::max_element(row.begin(), row.end()));
    fmt::print("  {} ", tokens[i]);
    for (const double w : row) {
      const char* shade = kShades[static_cast<size_t>(std::min(4.0, std::ceil(4 * w / most - 1e-9)))];
      fmt::print("{}{}", shade, shade);
    }
    fmt::print("\n");
  }
}

// Who attends to whom when the model reads this text.
void print_attention(LoadedModel& model, const std::string& text, const std::string& layer, bool json) {
  const Tokenizer& tokenizer = *model.checkpoint.tokenizer();
  std::vector<int32_t> ids;
  try {
    ids = tokenizer.encode(text);
  } catch (const Error& e) {
    throw ConfigError(fmt::format("--attention: {}", e.what()));
  }
  if (static_cast<int64_t>(ids.size()) > model.decoder.config().block_size)
    throw ConfigError(fmt::format("--attention has {} tokens, more than block_size {}", ids.size(),
                                  model.decoder.config().block_size));
  std::map<std::string, Tensor> weights;
  Context context;
  context.weights = &weights;
  model.decoder(from<int32_t>({1, static_cast<int64_t>(ids.size())}, ids), context);
  if (!layer.empty() && !weights.contains(layer))
    throw ConfigError(fmt::format("--layer: no attention layer is called {}", layer));

  nlohmann::ordered_json all;
  std::vector<std::string> tokens;
  for (const int32_t id : ids) {
    const std::string token = tokenizer.decode(std::vector<int32_t>{id});
    all["tokens"].push_back(token);
    tokens.push_back(token == "\n" ? "\u21b5" : token);
  }
  for (const auto& [path, tensor] : weights) {
    if (!layer.empty() && path != layer) continue;
    const std::vector<double> values = tensor.values();
    const size_t n = ids.size(), heads = static_cast<size_t>(tensor.size(1));
    for (size_t h = 0; h < heads; ++h) {
      const std::span head(values.data() + h * n * n, n * n);
      if (!json) print_heat_map(tokens, fmt::format("{} head {}", path, h), head);
      nlohmann::ordered_json rows;
      for (size_t i = 0; json && i < n; ++i)
        rows.push_back(std::vector<double>(head.begin() + static_cast<int64_t>(i * n),
                                           head.begin() + static_cast<int64_t>((i + 1) * n)));
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
      "inspect", "parameters, shapes, operations and memory of a config or checkpoint");
  a->add_to(*command);
  CLI::Option* attention =
      command->add_option("--attention", a->text, "of a checkpoint: who attends to whom in this text")
          ->check(not_empty());
  command->add_option("--layer", a->layer, "only this layer's: block.0.attention")
      ->needs(attention)
      ->check(not_empty());
  command->add_flag("--json", a->json, "the weights as numbers")->needs(attention);
  command->callback([a] {
    const std::filesystem::path path(a->path);
    if ((path.extension() == ".yaml" || path.extension() == ".yml") && !std::filesystem::is_directory(path)) {
      if (!a->text.empty())
        throw ConfigError("--attention needs a trained model, and " + a->path + " is a config");
      RunConfig config = a->load();
      prepare_data_or_vocabulary(config);
      Module root;
      Decoder decoder{&root, "", config.model};
      print_model(decoder, config);
    } else {
      if (!a->settings.empty() || !a->device.empty() || a->threads >= 0)
        throw ConfigError("--set, --device and --threads are for a config, and " + a->path +
                          " is a checkpoint");
      LoadedModel model(a->path);
      if (!a->text.empty()) return print_attention(model, a->text, a->layer, a->json);
      fmt::print("{}: step {}, best validation loss {:.4f}\n\n", model.checkpoint.file().string(),
                 model.checkpoint.progress().step, model.checkpoint.progress().best_loss);
      print_model(model.decoder, model.checkpoint.config());
    }
  });
}

}  // namespace bonsai
