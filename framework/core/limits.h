// What the process may use of its machine: processors, by its affinity mask and the quotas of its control groups;
// memory, by those groups and its resource limits. A container or a batch system sets them lower than the machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string_view>

namespace bonsai {

struct ProcessorLimits {
  int allowed = 1;                                          // processors in the affinity mask
  double quota = std::numeric_limits<double>::infinity();  // processors' worth of time that the control groups grant

  int usable() const;  // the smaller of both, a part of a processor counted as one; at least 1
};

// `root` stands for / in every path that is read.
ProcessorLimits processor_limits(const std::filesystem::path& root = "/");
// Bytes: the smallest of the machine's memory, the limits of the control groups, RLIMIT_AS and RLIMIT_DATA.
int64_t memory_limit(const std::filesystem::path& root = "/");

// The processors of "QUOTA PERIOD", both in microseconds: the text of cpu.max. Infinite for "max", -1 and what is no
// such text.
double parse_quota(std::string_view text);
// The bytes of memory.max or memory.limit_in_bytes; the largest number for "max" and what is no number.
int64_t parse_bytes(std::string_view text);

}  // namespace bonsai
