// A job that uses every processor of a shared machine is throttled or slows down other jobs. The processors
// and memory that the process may use are read from its affinity mask, control groups and resource limits
// (B46).
#include "bonsai/framework/core/limits.h"

#include <sys/resource.h>

#include <thread>

#include "bonsai/tests/affinity.h"
#include "bonsai/tests/program.h"

namespace bonsai::test {
namespace {

constexpr double kNoQuota = std::numeric_limits<double>::infinity();

TEST(Limits, AQuotaIsReadFromItsText) {
  EXPECT_EQ(parse_quota("150000 100000\n"), 1.5);
  EXPECT_EQ(parse_quota("5000 100000"), 0.05);
  for (const char* text : {"max 100000", "-1 100000", "", " ", "0 100000", "100000", "100000 0", "100000 -5",
                           "x y"})
    EXPECT_EQ(parse_quota(text), kNoQuota) << "'" << text << "'";
}

TEST(Limits, UsableIsTheSmallerOfMaskAndQuotaRoundedUp) {
  const auto usable = [](int allowed, double quota) { return ProcessorLimits{allowed, quota}.usable(); };
  EXPECT_EQ(usable(8, kNoQuota), 8);
  EXPECT_EQ(usable(8, 1.5), 2);
  EXPECT_EQ(usable(8, 2.0), 2);
  EXPECT_EQ(usable(8, 0.05), 1);
  EXPECT_EQ(usable(2, 3.5), 2);
  EXPECT_EQ(usable(8, 1e300), 8);
}

// A root folder with the files that the kernel would provide in /proc and /sys.
struct Root {
  Folder folder;
  Root(const std::string& groups, const std::string& mounts, const std::map<std::string,
       std::string>& files) {
    add("proc/self/cgroup", groups);
    add("proc/self/mountinfo", mounts);
    for (const auto& [path, text] : files) add(path, text);
  }
  void add(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((folder / path).parent_path());
    write(folder / path, text);
  }
};

const std::string kVersion2 =
    "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
const std::string kVersion1 =
    "31 25 0:27 / /sys/fs/cgroup/memory rw shared:5 - cgroup cgroup rw,memory\n"
    "33 25 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:6 - cgroup cgroup rw,cpu,cpuacct\n";
const std::string kContainer1 =  // the container sees only its own groups
    "31 25 0:27 /docker/ab /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
    "33 25 0:29 /docker/ab /sys/fs/cgroup/cpu ro master:11 - cgroup cgroup rw,cpu\n";

TEST(Limits, TheTightestQuotaOfNestedGroupsCounts) {
  const struct {
    const char* name;
    std::string groups, mounts;
    std::map<std::string, std::string> files;
    double quota;
  } cases[] = {
      {"version 2, own group", "0::/job\n", kVersion2, {{"sys/fs/cgroup/job/cpu.max", "50000 100000\n"}},
       0.5},
      {"version 2, group around it", "0::/batch/job\n", kVersion2,
       {{"sys/fs/cgroup/batch/cpu.max", "150000 100000\n"},
        {"sys/fs/cgroup/batch/job/cpu.max", "max 100000\n"}}, 1.5},
      {"version 2, both", "0::/batch/job\n", kVersion2,
       {{"sys/fs/cgroup/batch/cpu.max", "300000 100000\n"},
        {"sys/fs/cgroup/batch/job/cpu.max", "200000 100000\n"}}, 2},
      {"version 2, namespace of a container", "0::/\n", kVersion2,
       {{"sys/fs/cgroup/cpu.max", "250000 100000\n"}}, 2.5},
      {"version 2, a group that is not mounted", "0::/../other\n", kVersion2,
       {{"sys/fs/cgroup/cpu.max", "100000 100000\n"}, {"sys/fs/other/cpu.max", "1 100000\n"}}, 1},
      {"version 2, another's group", "0::/job\n", kVersion2,
       {{"sys/fs/cgroup/other/cpu.max", "50000 100000\n"}}, kNoQuota},
      {"version 1, own group", "5:cpu,cpuacct:/job\n4:memory:/\n", kVersion1,
       {{"sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "150000\n"},
        {"sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n"}}, 1.5},
      {"version 1, group around it", "5:cpu,cpuacct:/batch/job\n", kVersion1,
       {{"sys/fs/cgroup/cpu,cpuacct/batch/cpu.cfs_quota_us", "50000\n"},
        {"sys/fs/cgroup/cpu,cpuacct/batch/cpu.cfs_period_us", "50000\n"},
        {"sys/fs/cgroup/cpu,cpuacct/batch/job/cpu.cfs_quota_us", "-1\n"},
        {"sys/fs/cgroup/cpu,cpuacct/batch/job/cpu.cfs_period_us", "100000\n"}}, 1},
      {"version 1, container", "5:cpu:/docker/ab\n4:memory:/docker/ab\n", kContainer1,
       {{"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "300000\n"},
        {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}}, 3},
      {"version 1 beside an empty version 2", "5:cpu:/docker/ab\n0::/\n", kContainer1 + kVersion2,
       {{"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "300000\n"},
        {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}}, 3},
      {"cpuset is not cpu", "5:cpuset:/job\n",
       "31 25 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n",
       {{"sys/fs/cgroup/cpuset/job/cpu.max", "50000 100000\n"}}, kNoQuota},
      {"damaged files", "no colon\n0:\n0::/job", "short\n- \n" + kVersion2,
       {{"sys/fs/cgroup/job/cpu.max", "many\n"}}, kNoQuota},
      {"no control groups", "", "", {}, kNoQuota},
  };
  for (const auto& c : cases) {
    const Root root(c.groups, c.mounts, c.files);
    EXPECT_EQ(processor_limits(root.folder.path()).quota, c.quota) << c.name;
  }
  EXPECT_EQ(processor_limits("/nowhere").quota, kNoQuota);
}

TEST(Limits, TheTightestMemoryLimitOfNestedGroupsCounts) {
  const int64_t machine = memory_limit("/nowhere");
  EXPECT_GT(machine, 100 << 20);
  const Root version2("0::/batch/job\n", kVersion2,
                      {{"sys/fs/cgroup/batch/memory.max", "20000000\n"},
                       {"sys/fs/cgroup/batch/job/memory.max", "max\n"}});
  EXPECT_EQ(memory_limit(version2.folder.path()), 20000000);
  const Root version1("4:memory:/docker/ab\n", kContainer1,
                      {{"sys/fs/cgroup/memory/memory.limit_in_bytes", "30000000\n"}});
  EXPECT_EQ(memory_limit(version1.folder.path()), 30000000);
  const Root none("4:memory:/\n", kVersion1,
                  {{"sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"}});
  EXPECT_EQ(memory_limit(none.folder.path()), machine);
}

TEST(Limits, MemoryIsNoMoreThanTheResourceLimits) {
  const int64_t machine = memory_limit("/nowhere");
  for (const auto resource : {RLIMIT_AS, RLIMIT_DATA}) {
    rlimit before{};
    ASSERT_EQ(::getrlimit(resource, &before), 0);
    const rlimit lower{static_cast<rlim_t>(machine / 2), before.rlim_max};
    ASSERT_EQ(::setrlimit(resource, &lower), 0);
    const int64_t limited = memory_limit("/nowhere");
    ::setrlimit(resource, &before);
    EXPECT_EQ(limited, machine / 2);
  }
}

TEST(Limits, TheProgramStartsOneThreadPerProcessorOfItsMask) {
  const Program p;
  std::thread([&] {
    ASSERT_TRUE(use_one_processor());
    EXPECT_EQ(processor_limits().allowed, 1);
    const std::string doctor = p.run({"doctor"}).out;
    EXPECT_NE(doctor.find("processors  1 in the affinity mask"), std::string::npos) << doctor;
    EXPECT_NE(doctor.find("threads     1\n"), std::string::npos) << doctor;
  }).join();
}

}  // namespace
}  // namespace bonsai::test
