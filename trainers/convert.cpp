#include "bonsai/trainers/convert.h"

#include <sstream>

#include "bonsai/framework/config/print.h"
#include "bonsai/framework/config/yaml.h"
#include "bonsai/framework/io/file.h"
#include "bonsai/framework/io/safetensors.h"
#include "bonsai/trainers/checkpoint.h"
#include "bonsai/trainers/run_folder.h"

namespace bonsai {
namespace {

namespace fs = std::filesystem;

// Returns the config as YAML, with the current names of all keys.
std::string converted_config(const std::string& text, const std::string& name) {
  ConfigFile file = ConfigFile::from_text(text, name);
  file.rename_old_keys<RunConfig>();
  return dump_config(config_keys(file.read<RunConfig>()));
}

bool convert_checkpoint(const fs::path& path) {
  const SafetensorsFile file(path);
  auto metadata = file.metadata();
  check(metadata.contains("format") && metadata.contains("config") && metadata.contains("checksum"),
        path.string(), "is not a checkpoint of Bonsai");
  const std::string config = converted_config(metadata["config"], path.string() + " (config)");
  if (metadata["format"] == kCheckpointFormat && config == metadata["config"]) return false;
  std::map<std::string, Tensor> tensors;
  for (const std::string& name : file.names()) tensors[name] = file.read(name);
  check_checksum(path.string(), tensors, metadata);
  metadata["format"] = kCheckpointFormat;
  metadata["config"] = config;
  metadata["checksum"] = checkpoint_checksum(tensors, metadata);
  write_safetensors(path, {tensors.begin(), tensors.end()}, metadata);
  return true;
}

// Keeps the comments at the start, which record when the run was resumed.
bool convert_config(const fs::path& path) {
  const std::string before = read_file(path, kMaxConfigBytes);
  std::string now;
  std::istringstream lines(before);
  for (std::string line; std::getline(lines, line) && line.starts_with('#');) now += line + "\n";
  now += converted_config(before, path.string());
  if (now == before) return false;
  replace_file(path, now);
  return true;
}

}  // namespace

std::vector<fs::path> convert(const fs::path& path) {
  std::vector<fs::path> changed;
  const auto note = [&](const fs::path& file, bool is_changed) {
    if (is_changed) changed.push_back(file);
  };
  if (fs::is_directory(path)) {
    const RunFolder run{path};
    check_run_folder(run, /*resume=*/true);
    for (const fs::path& file : {run.last(), run.best()})
      if (fs::exists(file)) note(file, convert_checkpoint(file));
    note(run.config(), convert_config(run.config()));
  } else if (is_checkpoint_file(path)) {
    note(path, convert_checkpoint(path));
  } else {
    throw ConfigError(path.string() + " is neither a run folder nor a checkpoint");
  }
  return changed;
}

}  // namespace bonsai
