#include "bonsai/framework/core/limits.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace bonsai {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kNoBytes = std::numeric_limits<int64_t>::max();  // no limit

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

bool lists(const std::string& names, std::string_view name) {
  return fmt::format(",{},", names).find(fmt::format(",{},", name)) != std::string::npos;
}

// The process's control group, read from /proc/self/cgroup, whose lines are "ID:CONTROLLER,...:GROUP": the
// one in the cgroup v2 hierarchy if `controller` is empty, else the one in that controller's v1 hierarchy.
// Empty if there is none.
std::string group_of_process(const fs::path& root, std::string_view controller) {
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t a = line.find(':'), b = line.find(':', a + 1);
    if (a == std::string::npos || b == std::string::npos) continue;
    const std::string names = line.substr(a + 1, b - a - 1);
    if (controller.empty() ? names.empty() : lists(names, controller)) return line.substr(b + 1);
  }
  return {};
}

// The mounted directories that may hold limits of the controller: the one of the process's control group and
// those of its ancestors. Lines of mountinfo: "ID PARENT DEVICE GROUP FOLDER OPTIONS... - TYPE SOURCE
// OPTIONS".
std::vector<fs::path> group_folders(const fs::path& root, std::string_view controller) {
  std::vector<fs::path> folders;
  std::ifstream file(root / "proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::string skipped, mounted_group, mounted_at, type, options;
    std::istringstream(line) >> skipped >> skipped >> skipped >> mounted_group >> mounted_at;
    std::istringstream(line.substr(dash + 3)) >> type >> skipped >> options;
    const bool unified = type == "cgroup2";
    if (!unified && (type != "cgroup" || !lists(options, controller))) continue;
    const std::string group = group_of_process(root, unified ? std::string_view{} : controller);
    if (group.empty()) continue;
    const fs::path top = root / fs::path(mounted_at).relative_path();
    fs::path inner = fs::path(group).lexically_relative(mounted_group);
    // If the group itself is not mounted, only the mounted ancestor holds limits.
    if (inner.empty() || inner == "." || *inner.begin() == "..") inner.clear();
    for (; !inner.empty(); inner = inner.parent_path()) folders.push_back(top / inner);
    folders.push_back(top);
  }
  return folders;
}

int processors_in_mask() {
  for (int size = CPU_SETSIZE; size <= 1 << 20; size *= 2) {  // EINVAL means that the set is too small
    cpu_set_t* set = CPU_ALLOC(size);
    if (!set) break;
    const bool read = ::sched_getaffinity(0, CPU_ALLOC_SIZE(size), set) == 0;
    const int count = read ? CPU_COUNT_S(CPU_ALLOC_SIZE(size), set) : 0;
    CPU_FREE(set);
    if (read) return std::max(1, count);
    if (errno != EINVAL) break;
  }
  return std::max<int>(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
}

}  // namespace

int ProcessorLimits::usable() const {
  return std::max(1, static_cast<int>(std::min<double>(allowed, std::ceil(quota))));
}

double parse_quota(std::string_view text) {
  int64_t quota = 0, period = 0;
  std::istringstream(std::string(text)) >> quota >> period;
  if (quota <= 0 || period <= 0) return std::numeric_limits<double>::infinity();
  return static_cast<double>(quota) / static_cast<double>(period);
}

int64_t parse_bytes(std::string_view text) {
  int64_t bytes = 0;
  return std::from_chars(text.begin(), text.end(), bytes).ec == std::errc{} ? bytes : kNoBytes;
}

ProcessorLimits processor_limits(const fs::path& root) {
  ProcessorLimits limits;
  limits.allowed = processors_in_mask();
  for (const fs::path& folder : group_folders(root, "cpu"))
    for (const std::string& text :
         {first_line(folder / "cpu.max"),
          first_line(folder / "cpu.cfs_quota_us") + " " + first_line(folder / "cpu.cfs_period_us")})
      limits.quota = std::min(limits.quota, parse_quota(text));
  return limits;
}

int64_t memory_limit(const fs::path& root) {
  int64_t bytes = static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
  for (const auto resource : {RLIMIT_AS, RLIMIT_DATA}) {
    rlimit limit{};  // RLIM_INFINITY is the largest rlim_t
    if (::getrlimit(resource, &limit) == 0 && limit.rlim_cur < static_cast<rlim_t>(bytes))
      bytes = static_cast<int64_t>(limit.rlim_cur);
  }
  for (const fs::path& folder : group_folders(root, "memory"))
    for (const char* name : {"memory.max", "memory.limit_in_bytes"})
      bytes = std::min(bytes, parse_bytes(first_line(folder / name)));
  return bytes;
}

}  // namespace bonsai
