#include "trainers/checkpoint.h"

#include <fmt/format.h>

#include <cstring>

#include "framework/autograd/dispatch.h"
#include "framework/config/print.h"
#include "framework/config/yaml.h"
#include "framework/io/safetensors.h"

namespace bonsai {
namespace {

using Named = std::vector<std::pair<std::string, Tensor>>;
using Metadata = std::map<std::string, std::string>;

// FNV-1a over names, types, shapes, bytes and settings: one flipped byte anywhere changes it.
class Checksum {
 public:
  void add(const void* data, size_t bytes) {
    const auto* at = static_cast<const unsigned char*>(data);
    for (size_t i = 0; i < bytes; ++i) hash_ = (hash_ ^ at[i]) * 0x100000001b3;
  }
  void add(const std::string& text) {
    const uint64_t size = text.size();
    add(&size, sizeof size);
    add(text.data(), text.size());
  }
  std::string text() const { return fmt::format("{:016x}", hash_); }

 private:
  uint64_t hash_ = 0xcbf29ce484222325;
};

std::string checksum_of(const std::map<std::string, Tensor>& tensors, const Metadata& metadata) {
  Checksum sum;
  for (const auto& [name, tensor] : tensors) {
    sum.add(name + " " + tensor.detach().describe());
    sum.add(tensor.data(), static_cast<size_t>(tensor.elements()) * size_of(tensor.dtype()));
  }
  for (const auto& [key, value] : metadata)
    if (key != "checksum") sum.add(key), sum.add(value);
  return sum.text();
}

// The part of a flat moment that belongs to a parameter, by its place in the arena.
Tensor moment_of(const Tensor& flat, const Parameter& p) {
  return flat.alias(p.value.shape(), static_cast<int64_t>(p.value.offset()));
}

double number(const Metadata& metadata, const std::string& key, const std::string& file) {
  const auto at = metadata.find(key);
  check(at != metadata.end(), file, "the checkpoint has no {}", key);
  char* end = nullptr;
  const double value = std::strtod(at->second.c_str(), &end);
  check(end && *end == '\0' && !at->second.empty(), file, "{} is '{}', which is not a number", key, at->second);
  return value;
}

std::filesystem::path find_file(const std::filesystem::path& path) {
  for (const auto& candidate : {path, path / "checkpoint.safetensors", path / "checkpoints/last/checkpoint.safetensors"})
    if (std::filesystem::is_regular_file(candidate)) return candidate;
  fail(path.string(), "is no checkpoint: neither a file, nor a folder with checkpoint.safetensors, nor a run folder");
}

}  // namespace

void save_checkpoint(const std::filesystem::path& file, Trainer& trainer, const Progress& progress) {
  Metadata metadata = {{"format", "bonsai checkpoint 1"},
                       {"config", dump_config(config_keys(trainer.config()))},
                       {"tokenizer", trainer.config().data->tokenizer()->serialise()},
                       {"step", std::to_string(progress.step)},
                       {"best_loss", fmt::format("{}", progress.best_loss)},
                       {"evaluations_without_better", std::to_string(progress.evaluations_without_better)}};
  Named tensors;
  for (Parameter* p : trainer.arena().parameters()) {
    tensors.emplace_back(p->path, p->value.detach());
    tensors.emplace_back("adamw.m." + p->path, moment_of(trainer.optimizer().m(), *p));
    tensors.emplace_back("adamw.v." + p->path, moment_of(trainer.optimizer().v(), *p));
  }
  metadata["checksum"] = checksum_of({tensors.begin(), tensors.end()}, metadata);
  std::filesystem::create_directories(file.parent_path());
  write_safetensors(file, tensors, metadata);
}

Checkpoint::Checkpoint(const std::filesystem::path& path) : path_(find_file(path)) {
  const std::string name = path_.string();
  const SafetensorsFile file(path_);
  const Metadata& metadata = file.metadata();
  const auto format = metadata.find("format");
  check(format != metadata.end() && format->second == "bonsai checkpoint 1", name,
        "is a safetensors file, but not a checkpoint of Bonsai");
  for (const std::string& tensor : file.names()) tensors_[tensor] = file.read(tensor);
  const auto sum = metadata.find("checksum");
  check(sum != metadata.end() && sum->second == checksum_of(tensors_, metadata), name,
        "is damaged: its checksum does not match; use another checkpoint");
  progress_.step = static_cast<int64_t>(number(metadata, "step", name));
  progress_.best_loss = number(metadata, "best_loss", name);
  progress_.evaluations_without_better = static_cast<int64_t>(number(metadata, "evaluations_without_better", name));
  config_ = ConfigFile::from_text(metadata.at("config"), name + " (config)").load<RunConfig>();
  tokenizer_ = Tokenizer::from_serialised(metadata.at("tokenizer"));
}

void Checkpoint::load_model(Decoder& model) const {
  for (Parameter* p : model.parameters()) {
    const auto at = tensors_.find(p->path);
    check(at != tensors_.end() && at->second.shape() == p->value.shape(), path_.string(), "has no tensor for {}", p->value);
    copy_into(at->second.to(p->value.dtype()), p->value);
  }
}

void Checkpoint::load(Trainer& trainer) const {
  load_model(trainer.model());
  for (Parameter* p : trainer.arena().parameters())
    for (const auto& [prefix, flat] : {std::pair{"adamw.m.", &trainer.optimizer().m()}, std::pair{"adamw.v.", &trainer.optimizer().v()}}) {
      const auto at = tensors_.find(prefix + p->path);
      check(at != tensors_.end() && at->second.shape() == p->value.shape() && at->second.dtype() == p->value.dtype(),
            path_.string(), "has no {}{} like {}; the run cannot go on from it", prefix, p->path, p->value);
      Tensor part = moment_of(*flat, *p);
      copy_into(at->second, part);
    }
}

}  // namespace bonsai
