#include "bonsai/trainers/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <fstream>
#include <set>

#include "bonsai/framework/autograd/fill.h"
#include "bonsai/framework/config/print.h"
#include "bonsai/framework/config/yaml.h"
#include "bonsai/framework/core/checksum.h"
#include "bonsai/framework/core/quote.h"
#include "bonsai/framework/io/json.h"
#include "bonsai/framework/io/safetensors.h"
#include "bonsai/trainers/run_folder.h"

namespace bonsai {
namespace {

using Named = std::vector<std::pair<std::string, Tensor>>;
using Metadata = std::map<std::string, std::string>;

const std::string& text(const Metadata& metadata, const std::string& key, const std::string& file) {
  const auto at = metadata.find(key);
  check(at != metadata.end(), file, "the checkpoint has no {}", key);
  return at->second;
}

int64_t whole_number(const Metadata& metadata, const std::string& key, const std::string& file) {
  const std::string& digits = text(metadata, key, file);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  check(error == std::errc() && end == digits.data() + digits.size() && value >= 0, file,
        "{} is '{}', which is not a whole number from 0", key, escaped(digits));
  return value;
}

double number(const Metadata& metadata, const std::string& key, const std::string& file) {
  const std::string& digits = text(metadata, key, file);
  double value = NAN;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  check(error == std::errc() && end == digits.data() + digits.size() && !std::isnan(value), file,
        "{} is '{}', which is not a number", key, escaped(digits));
  return value;
}

constexpr const char* kPending[] = {"nothing", "full_evaluation", "sample", "evaluation"};

// Returns `nothing` for files that are older than the key.
Pending pending(const Metadata& metadata, const std::string& file) {
  const auto at = metadata.find("pending");
  if (at == metadata.end()) return Pending::nothing;
  const auto* found = std::find(std::begin(kPending), std::end(kPending), at->second);
  check(found != std::end(kPending), file, "pending is '{}', which this version does not know",
        escaped(at->second));
  return static_cast<Pending>(found - kPending);
}

// Returns an empty identity for files that are older than the key.
DataIdentity data_identity(const Metadata& metadata, const std::string& file) {
  const auto at = metadata.find("data");
  if (at == metadata.end()) return {};
  DataIdentity identity;
  const auto json = parse_json(at->second, file);
  check(json.is_object(), file, "the metadata `data` is not a JSON object");
  for (const auto& [name, value] : json.items()) {
    check(value.is_string(), file, "a value in the metadata `data` is not a string");
    identity[name] = value;
  }
  return identity;
}

std::filesystem::path find_file(const std::filesystem::path& path) {
  if (std::filesystem::is_regular_file(path) && !is_checkpoint_file(path))
    throw ConfigError(path.string() + " is a text file, not a checkpoint; name a run folder");
  for (const auto& candidate :
       {path, path / "checkpoint.safetensors", path / "last/checkpoint.safetensors",
        path / "checkpoints/last/checkpoint.safetensors", path / "checkpoints/best/checkpoint.safetensors"})
    if (std::filesystem::is_regular_file(candidate)) return candidate;
  check(!(is_run({path}) && std::filesystem::exists(RunFolder{path}.config())), path.string(),
        "is a run that has no checkpoint yet; wait for its first, or see trainer.checkpoint_interval");
  throw ConfigError(
      path.string() +
      " is not a checkpoint: neither a file, nor a folder with checkpoint.safetensors, nor a run folder");
}

}  // namespace

// Covers names, dtypes, shapes and bytes of the tensors, and the metadata.
std::string checkpoint_checksum(const std::map<std::string, Tensor>& tensors, const Metadata& metadata) {
  Checksum sum;
  for (const auto& [name, tensor] : tensors) {
    sum.add(name + " " + tensor.detach().describe());
    sum.add(tensor.data(), static_cast<size_t>(tensor.elements()) * size_of(tensor.dtype()));
  }
  for (const auto& [key, value] : metadata)
    if (key != "checksum") sum.add(key), sum.add(value);
  return sum.text();
}

void check_checksum(const std::string& file, const std::map<std::string, Tensor>& tensors,
                    const Metadata& metadata) {
  check(text(metadata, "checksum", file) == checkpoint_checksum(tensors, metadata), file,
        "is damaged: its checksum does not match; use another checkpoint");
}

bool is_checkpoint_file(const std::filesystem::path& path) {
  if (!std::filesystem::is_regular_file(path)) return false;  // reading a pipe could block
  std::array<char, 8> first{};
  std::ifstream file(path, std::ios::binary);
  file.read(first.data(), first.size());
  return std::find(first.begin(), first.begin() + file.gcount(), '\0') != first.begin() + file.gcount();
}

void save_checkpoint(const std::filesystem::path& file, Trainer& trainer, const Progress& progress) {
  Metadata metadata = {{"format", kCheckpointFormat},
                       {"config", dump_config(config_keys(trainer.config()))},
                       {"tokenizer", trainer.config().data->tokenizer()->serialise()},
                       {"data", nlohmann::json(trainer.config().data->identity()).dump()},
                       {"step", std::to_string(progress.step)},
                       {"best_loss", fmt::format("{}", progress.best_loss)},
                       {"evaluations_without_better", std::to_string(progress.evaluations_without_better)},
                       {"pending", kPending[static_cast<size_t>(progress.pending)]}};
  Named tensors;
  for (Parameter* p : trainer.arena().parameters()) tensors.emplace_back(p->path, p->value.to(Device{}));
  for (const auto& [name, state] : trainer.optimizer().tensors())
    tensors.emplace_back(name, state.to(Device{}));
  metadata["checksum"] = checkpoint_checksum({tensors.begin(), tensors.end()}, metadata);
  std::filesystem::create_directories(file.parent_path());
  write_safetensors(file, tensors, metadata);
}

Checkpoint::Checkpoint(const std::filesystem::path& path) : path_(find_file(path)) {
  const std::string name = path_.string();
  const SafetensorsFile file(path_);
  const Metadata& metadata = file.metadata();
  const auto format = metadata.find("format");
  check(format == metadata.end() || format->second != kFirstFormat, name,
        "was written by an earlier version; bonsai convert rewrites it");
  check(format != metadata.end() && format->second == kCheckpointFormat, name,
        "is a safetensors file, but not a checkpoint of this version of Bonsai");
  for (const std::string& tensor : file.names()) tensors_[tensor] = file.read(tensor);
  check_checksum(name, tensors_, metadata);
  progress_.step = whole_number(metadata, "step", name);
  progress_.best_loss = number(metadata, "best_loss", name);
  progress_.evaluations_without_better = whole_number(metadata, "evaluations_without_better", name);
  progress_.pending = pending(metadata, name);
  config_ = ConfigFile::from_text(text(metadata, "config", name), name + " (config)").read<RunConfig>();
  const DType dtype = config_.trainer.type();
  for (const auto& [tensor, value] : tensors_)
    check(value.dtype() == dtype, name, "tensor {} is {}, but trainer.dtype is {}", in_quotes(tensor),
          name_of(value.dtype()), name_of(dtype));
  tokenizer_ = Tokenizer::from_serialised(text(metadata, "tokenizer", name));
  data_ = data_identity(metadata, name);
  check(tokenizer_->vocab_size() == config_.model.vocab_size, name,
        "its tokenizer has {} tokens, but its model has a vocab_size of {}; use another checkpoint",
        tokenizer_->vocab_size(), config_.model.vocab_size);
}

std::string Checkpoint::data_changes(const Task& task) const {
  if (data_.empty()) return "";
  const DataIdentity now = task.identity();
  std::map<std::string, std::string> names = data_;
  names.insert(now.begin(), now.end());
  std::vector<std::string> changes;
  const auto value = [](const DataIdentity& identity, const std::string& name) {
    const auto at = identity.find(name);
    return at == identity.end() ? "not there" : at->second;
  };
  for (const auto& [name, any] : names)
    if (value(data_, name) != value(now, name))
      changes.push_back(fmt::format("{} is {}, was {}", escaped(name), escaped(value(now, name)),
                                    escaped(value(data_, name))));
  return fmt::format("{}", fmt::join(changes, "; "));
}

Build Checkpoint::build(Device device) const {
  return {.dtype = config_.trainer.type(),
          .device = device,
          .admit = [this](const std::string& path, const Shape& shape) { tensor_for(path, shape); }};
}

const Tensor& Checkpoint::tensor_for(const std::string& name, const Shape& shape) const {
  const auto at = tensors_.find(name);
  check(at != tensors_.end() && at->second.shape() == shape, path_.string(),
        "has no tensor {} {}, which its model needs", name, shape);
  return at->second;
}

// Tensors of the optimizer state have names such as "adamw.m.block.0.norm.weight".
bool Checkpoint::is_state_of(const std::string& name, const std::set<std::string>& parameters) const {
  const std::string& optimizer = config_.optimizer.kind.name();
  const size_t slot = optimizer.size() + 1, end = name.find('.', slot);
  return name.starts_with(optimizer + ".") && end != name.npos && parameters.contains(name.substr(end + 1));
}

// Checks all tensors before it changes any parameter.
void Checkpoint::load_model(Model& model) const {
  std::vector<std::pair<Parameter*, Tensor>> found;
  std::set<std::string> names;
  for (Parameter* p : model.parameters()) {
    found.emplace_back(p, tensor_for(p->path, p->value.shape()).to(p->value.dtype()));
    names.insert(p->path);
  }
  for (const auto& [name, tensor] : tensors_)
    check(names.contains(name) || is_state_of(name, names), path_.string(),
          "has {} {}, which this model does not have", in_quotes(name), tensor.shape());
  for (auto& [parameter, value] : found) copy_into(value, parameter->value);
}

void Checkpoint::load(Trainer& trainer) const {
  const auto& state = trainer.optimizer().tensors();
  for (const auto& [name, tensor] : state) {
    const Tensor& stored = tensor_for(name, tensor.shape());
    check(stored.dtype() == tensor.dtype(), path_.string(), "has {} {}; a run of {} cannot go on from it",
          name, stored, tensor);
  }
  load_model(trainer.model());
  for (const auto& [name, tensor] : state) {
    Tensor part = tensor;
    copy_into(tensor_for(name, tensor.shape()), part);
  }
}

}  // namespace bonsai
