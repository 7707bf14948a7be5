// Callback of long-running functions.
#pragma once

#include <functional>

namespace bonsai {

// Called between micro-batches, evaluation batches and generated tokens. Throws to stop the work there.
using Poll = std::function<void()>;
inline const Poll kNoPoll = [] {};

}  // namespace bonsai
