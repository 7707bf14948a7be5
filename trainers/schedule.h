// The learning rate of each step: a linear warm-up, then a cosine.   Loshchilov & Hutter 2017
#pragma once

#include "bonsai/trainers/config.h"

namespace bonsai {

// The rate of step 0, 1, ... max_steps - 1. Step s of the warm-up has (s + 1) / warmup_steps of the full rate; the
// cosine starts after it and would reach the minimum at step max_steps, the first that is not taken.
double learning_rate(ScheduleConfig schedule, int64_t step, int64_t max_steps);

}  // namespace bonsai
