// metrics.jsonl: what a run has measured, one object a line.
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
  // Drops the lines that a run at `progress` will write again. ConfigError if the file has text, but no line
  // of a run.
  Metrics(const std::filesystem::path& path, const Progress& progress);

  // Appends a line.
  void write(const nlohmann::ordered_json& object);

  // The step that was logged last, if it is the first with at most half the loss of `window` steps before;
  // else 0.
  int64_t halving(int64_t window) const;

 private:
  void open();
  void note(const nlohmann::json& object);

  std::filesystem::path path_;
  std::unique_ptr<Descriptor> file_;
  std::vector<std::pair<int64_t, double>> losses_;  // by step
  bool marked_ = false;
};

}  // namespace bonsai
