#include "bonsai/trainers/schedule.h"

#include <cmath>
#include <numbers>

namespace bonsai {

double learning_rate(ScheduleConfig s, int64_t step, int64_t max_steps) {
  s.choose_defaults(max_steps);
  const auto at = static_cast<double>(step), warmup = static_cast<double>(s.warmup_steps);
  if (step < s.warmup_steps) return s.learning_rate * (at + 1) / warmup;
  if (s.decay == "constant") return s.learning_rate;
  const double length = static_cast<double>(max_steps) - warmup;
  if (at - warmup >= length) return s.min_learning_rate;
  const double cosine = 1 + std::cos(std::numbers::pi * (at - warmup) / length);
  return s.min_learning_rate + 0.5 * (s.learning_rate - s.min_learning_rate) * cosine;
}

}  // namespace bonsai
