// Limits on what the process may use. Processors: its affinity mask and the CPU quotas of its control groups.
// Memory: the limits of its control groups and its resource limits. Containers and batch systems set them
// below what the machine has.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string_view>

namespace bonsai {

struct ProcessorLimits {
  int allowed = 1;                                         // processors in the affinity mask
  // CPU time that the control groups grant, in processors.
  double quota = std::numeric_limits<double>::infinity();

  int usable() const;  // min(allowed, quota rounded up), at least 1
};

// `root` replaces / in every path that is read.
ProcessorLimits processor_limits(const std::filesystem::path& root = "/");
// In bytes: the smallest of the machine's memory, the limits of the control groups, RLIMIT_AS and
// RLIMIT_DATA.
int64_t memory_limit(const std::filesystem::path& root = "/");

// Parses "QUOTA PERIOD", both in microseconds, as in cpu.max. Returns QUOTA / PERIOD, the number of
// processors, or infinity for "max", -1 and malformed text.
double parse_quota(std::string_view text);
// Parses memory.max or memory.limit_in_bytes. Returns INT64_MAX for "max" and anything else that is not a
// number.
int64_t parse_bytes(std::string_view text);

}  // namespace bonsai
