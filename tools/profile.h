// What a profile says, as a table, as JSON and as a trace for chrome://tracing or Perfetto.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "bonsai/framework/autograd/profile.h"

namespace bonsai {

// One line a row, times and calls of one step.
std::string profile_table(const Profile& profile);
nlohmann::ordered_json profile_json(const Profile& profile);
// A JSON array of complete events: the parts of each step, the ops within them, the kernels within those.
void write_trace(const Profile& profile, const std::string& path);

}  // namespace bonsai
