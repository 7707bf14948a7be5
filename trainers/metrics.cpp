#include "bonsai/trainers/metrics.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <sstream>
#include <system_error>

#include "bonsai/framework/config/document.h"
#include "bonsai/framework/io/json.h"

namespace bonsai {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 30;
constexpr std::string_view kStart = "{\"step\":";  // the start of every line

// False for lines that were written after the checkpoint, and for lines that the resumed run writes again.
bool is_kept(const nlohmann::json& object, const Progress& progress) {
  if (!object.is_object() || !object.contains("step") || !object["step"].is_number()) return false;
  const double step = object["step"], last = static_cast<double>(progress.step);
  const auto pending = [&](Pending work, const char* key) {
    return progress.pending >= work && object.contains(key);
  };
  const bool again = pending(Pending::evaluation, "val_loss") || pending(Pending::sample, "sample") ||
                     pending(Pending::full_evaluation, "val_loss_full");
  return step < last || (step == last && !again);
}

}  // namespace

Metrics::Metrics(const std::filesystem::path& path, const Progress& progress) : path_(path) {
  std::string kept;
  bool text = false, own = false;
  std::istringstream old(std::filesystem::exists(path) ? read_file(path, kMaxBytes) : "");
  for (std::string line; std::getline(old, line);) {
    text |= !line.empty(), own |= line.starts_with(kStart);
    const auto object = parse_json(line, path.string());
    if (!is_kept(object, progress)) continue;
    kept += line + "\n";
    note(object);
  }
  if (text && !own)
    throw ConfigError(
        fmt::format("{} has no line of a run, so it is not replaced; move it away", path.string()));
  replace_file(path, kept);
  open();
}

void Metrics::open() {
  file_ = std::make_unique<Descriptor>(
      ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666));
  check(file_->number >= 0, path_.string(), "cannot be opened: {}", std::generic_category().message(errno));
}

void Metrics::write(const nlohmann::ordered_json& object) {
  note(object);
  if (!std::filesystem::exists(path_)) open();  // it was moved away
  const std::string line = object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  for (size_t done = 0; done < line.size();) {
    const ssize_t put = ::write(file_->number, line.data() + done, line.size() - done);
    if (put < 0 && errno == EINTR) continue;
    check(put >= 0, path_.string(), "could not be written: {}", std::generic_category().message(errno));
    done += static_cast<size_t>(put);
  }
}

int64_t Metrics::halving(int64_t window) const {
  if (marked_ || losses_.size() < 2) return 0;
  const auto& [step, loss] = losses_.back();
  const auto before = std::find_if(losses_.rbegin(), losses_.rend(),
                                   [&, step = step](const auto& l) { return l.first <= step - window; });
  return before != losses_.rend() && loss <= before->second / 2 ? step : 0;
}

void Metrics::note(const nlohmann::json& object) {
  marked_ |= object.contains("halved");
  if (object.contains("train_loss") && object["train_loss"].is_number())
    losses_.emplace_back(object["step"].get<int64_t>(), object["train_loss"].get<double>());
}

}  // namespace bonsai
