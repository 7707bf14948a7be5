// Writes metrics.jsonl, the measurements of a run, with one JSON object per line.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "bonsai/framework/io/file.h"
#include "bonsai/trainers/checkpoint.h"

namespace bonsai {

// A run's metrics.jsonl.
class Metrics {
 public:
  // Opens the file and removes the lines that a run resumed at `progress` writes again. Throws ConfigError if
  // the file has text but no line of a run.
  Metrics(const std::filesystem::path& path, const Progress& progress);

  // Appends a line.
  void write(const nlohmann::ordered_json& object);

  // Returns the last logged step if its loss is the first that is at most half the loss of `window` steps
  // before; otherwise 0.
  int64_t halving(int64_t window) const;

 private:
  void open();
  void note(const nlohmann::json& object);

  std::filesystem::path path_;
  std::unique_ptr<Descriptor> file_;
  std::vector<std::pair<int64_t, double>> losses_;  // (step, loss)
  bool marked_ = false;
};

}  // namespace bonsai
