// The gradient check must detect deliberately wrong gradients.
#include "bonsai/framework/autograd/dispatch.h"
#include "bonsai/framework/checks/mutate.h"
#include "bonsai/tests/support.h"

namespace bonsai::test {
namespace {

TEST(Mutants, NinetyNineOfAHundredAreCaught) {
  int64_t caught = 0, missed = 0, equivalent = 0;
  std::set<std::string> effective;
  for (const OpCase& row : op_cases()) {
    const MutationReport report = mutate(row);
    caught += report.caught;
    missed += static_cast<int64_t>(report.missed.size());
    equivalent += static_cast<int64_t>(report.equivalent.size());
    effective.insert(report.effective.begin(), report.effective.end());
    printf("%s: %lld caught, %zu missed, %zu equivalent\n", row.name().c_str(),
           static_cast<long long>(report.caught), report.missed.size(), report.equivalent.size());
    for (const auto& m : report.missed) printf("  missed: %s\n", m.c_str());
    for (const auto& m : report.equivalent) printf("  equivalent: %s\n", m.c_str());
    EXPECT_GE(report.caught, 3) << row.name();
  }
  printf("caught %lld of %lld, %lld equivalent\n", static_cast<long long>(caught),
         static_cast<long long>(caught + missed), static_cast<long long>(equivalent));
  EXPECT_GE(static_cast<double>(caught), 0.99 * static_cast<double>(caught + missed));
  // Each mutant must change the result of some row of the op table; otherwise it proves nothing.
  for (const KernelMutant& m : kernel_mutants())
    EXPECT_TRUE(effective.contains(m.kernel + ": " + m.change)) << m.kernel << ": " << m.change;
}

// Every kernel that a backward pass calls has a mutant. The calls are counted.
TEST(Mutants, EveryKernelOfABackwardHasOne) {
  std::set<std::string> with;
  for (const KernelMutant& m : kernel_mutants()) with.insert(m.kernel);
  for (const OpCase& row : op_cases()) {
    Probe probe(row.call, make_inputs(row, DType::f64), {}, 1);
    probe.gradients();
    KernelTable table = kernels(Device{}, DType::f64);
    table.for_each([&](const char* name, auto&) {
      if (with.contains(name)) return;
      const auto remove = [&](KernelTable& planted) {
        planted.for_each([&](const char* other, auto& kernel) {
          if (std::string(other) == name) kernel.run = nullptr;
        });
      };
      EXPECT_EQ(error_of([&] { probe.gradients(remove); }), "no error")
          << name << " is called by the backward of " << row.name();
    });
  }
}

}  // namespace
}  // namespace bonsai::test
