#include "bonsai/trainers/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>

namespace bonsai {
namespace {

std::string clock_text(double seconds) {
  const auto s = static_cast<int64_t>(std::max(0.0, seconds) + 0.5);
  return s < 3600 ? fmt::format("{}:{:02}", s / 60, s % 60)
                  : fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

// Called for each line, because the width may change. If the width is unknown, lines are not cut.
size_t terminal_width() {
  winsize size = {};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 1000;
}

}  // namespace

void say(const std::string& text) {
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

ProgressLine::ProgressLine(int64_t max_steps, int64_t first_step, double floor, bool quiet)
    : max_steps_(max_steps),
      first_step_(first_step),
      floor_(floor),
      quiet_(quiet),
      terminal_(isatty(STDERR_FILENO)) {}

ProgressLine::~ProgressLine() {
  if (drawn_) say("\n");
}

void ProgressLine::clear() {
  if (drawn_) say("\r\x1b[K");
  drawn_ = false;
}

double ProgressLine::tokens_per_second() const {
  return static_cast<double>(tokens_) / std::max(1e-9, seconds());
}

void ProgressLine::step(int64_t done, const StepResult& result) {
  tokens_ += result.tokens;
  const auto now = Clock::now();
  const double since = std::chrono::duration<double>(now - last_).count();
  if (quiet_ || (since < (terminal_ ? 0.1 : 5.0) && done < max_steps_)) return;
  last_ = now;
  const double left =
      seconds() / static_cast<double>(done - first_step_) * static_cast<double>(max_steps_ - done);
  const std::string floor = std::isnan(floor_) ? "" : fmt::format(" (floor {:.3f})", floor_);
  const std::string text =
      fmt::format("step {}/{}  loss {:.3f}{}  {:.1f}k tokens/s  {} left", done, max_steps_, result.loss,
                  floor, tokens_per_second() / 1000, clock_text(left));
  say(terminal_ ? "\r\x1b[K" + text.substr(0, terminal_width() - 1) : text + "\n");
  drawn_ = terminal_;
}

void ProgressLine::note(const std::string& text) {
  if (!quiet_) warn(text);
}

void ProgressLine::warn(const std::string& text) {
  clear();
  say(text + "\n");
}

}  // namespace bonsai
