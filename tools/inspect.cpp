// bonsai inspect CONFIG|CHECKPOINT: parameters, shapes, floating-point operations, memory.
#include <fmt/format.h>

#include "framework/config/yaml.h"
#include "tools/command.h"
#include "trainers/loop.h"

namespace bonsai {
namespace {

void print_model(Decoder& decoder, const RunConfig& config) {
  int64_t total = 0, decayed = 0, decayed_tensors = 0, others = 0;
  fmt::print("{:<40} {:<16} {:>10}  decay\n", "parameter", "shape", "elements");
  for (Parameter* p : decoder.parameters()) {
    fmt::print("{:<40} {:<16} {:>10}  {}\n", p->path, p->value.shape().str(), p->value.elements(), p->decay ? "yes" : "no");
    total += p->value.elements();
    p->decay ? ++decayed_tensors, decayed += p->value.elements() : ++others;
  }
  const DecoderConfig& m = config.model;
  const auto embeddings = static_cast<double>(m.position == "learned" ? m.block_size * m.d_model : 0) +
                          static_cast<double>(m.tie_embeddings ? 0 : m.vocab_size * m.d_model);
  const double flops = 6 * (static_cast<double>(total) - embeddings) +
                       6 * static_cast<double>(m.n_layers * m.block_size * m.d_model);
  const double bytes = static_cast<double>(total) * (config.trainer.dtype == "f64" ? 8 : 4);
  fmt::print("\n{} parameters; {} tensors with weight decay ({} elements), {} without\n", total, decayed_tensors, decayed, others);
  fmt::print("{:.3g} floating-point operations a token, forward and backward\n", flops);
  fmt::print("{:.1f} MiB of weights, {:.1f} MiB with gradients and moments\n", bytes / 1048576, 4 * bytes / 1048576);
}

}  // namespace

void add_inspect(CLI::App& program) {
  auto a = std::make_shared<ConfigArguments>();
  CLI::App* command = program.add_subcommand("inspect", "parameters, shapes, operations and memory of a config or checkpoint");
  a->add_to(*command);
  command->callback([a] {
    const std::filesystem::path path(a->path);
    if ((path.extension() == ".yaml" || path.extension() == ".yml") && !std::filesystem::is_directory(path)) {
      RunConfig config = a->load();
      prepare_data_or_vocabulary(config);
      Module root;
      Decoder decoder{&root, "", config.model};
      print_model(decoder, config);
    } else {
      if (!a->settings.empty() || !a->device.empty() || a->threads >= 0)
        throw ConfigError("--set, --device and --threads are for a config, and " + a->path + " is a checkpoint");
      LoadedModel model(a->path);
      fmt::print("{}: step {}, best validation loss {:.4f}\n\n", model.checkpoint.file().string(),
                 model.checkpoint.progress().step, model.checkpoint.progress().best_loss);
      print_model(model.decoder, model.checkpoint.config());
    }
  });
}

}  // namespace bonsai
