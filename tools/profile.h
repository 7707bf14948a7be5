// Prints a profile as a table, as JSON, or as a trace for chrome://tracing or Perfetto.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "bonsai/framework/autograd/profile.h"

namespace bonsai {

// Times and calls are means per step.
std::string profile_table(const Profile& profile);
nlohmann::ordered_json profile_json(const Profile& profile);
// A JSON array of complete events: the parts of each step, the ops within them, the kernels within those.
void write_trace(const Profile& profile, const std::string& path);

}  // namespace bonsai
