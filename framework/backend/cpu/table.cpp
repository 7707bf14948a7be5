// Chooses the level of the f32 kernels at startup: the highest one that this processor supports, or the one
// that BONSAI_ISA names.
#include "bonsai/framework/backend/cpu/table.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <cstdlib>
#include <string>
#include <vector>

#include "bonsai/framework/backend/cpu/gemm.h"
#include "bonsai/framework/core/error.h"
#include "bonsai/framework/core/memory.h"

namespace bonsai::cpu {

// One pair of functions per level of this build; CMake defines BONSAI_EACH_LEVEL as LEVEL(v2) LEVEL(v3) ...
#define LEVEL(name) namespace name { void fill_table(KernelTable& table); bool prefers_own(); }
BONSAI_EACH_LEVEL
#undef LEVEL
namespace f64 { void fill_table(KernelTable& table); bool prefers_own(); }

namespace {

struct Level {
  const char* name;
  void (*fill)(KernelTable&);
  bool (*prefers_own)();
};

constexpr Level kLevels[] = {  // lowest first
#define LEVEL(name) {#name, name::fill_table, name::prefers_own},
    BONSAI_EACH_LEVEL
#undef LEVEL
};

bool runs_here([[maybe_unused]] std::string_view level) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (level == "v4")
    return runs_here("v3") && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
  if (level == "v3") {
    unsigned a, b, c = 0, d, extended = 0;
    __get_cpuid(1, &a, &b, &c, &d);
    __get_cpuid(0x80000001, &a, &b, &extended, &d);
    const bool rest = (c & bit_MOVBE) && (c & bit_F16C) && (extended & bit_LZCNT);
    return rest && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  }
  if (level == "v2") return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
#endif
  return true;
}

const Level& chosen_level() {
  const char* wanted = std::getenv("BONSAI_ISA");
  const Level* best = nullptr;
  std::string names;
  for (const Level& level : kLevels) {
    names += std::string(" ") + level.name;
    const bool runs = runs_here(level.name);
    if (wanted && std::string(wanted) == level.name) {
      check(runs, "backend", "BONSAI_ISA={} is not supported by this processor", wanted);
      return level;
    }
    if (runs) best = &level;
  }
  check(!wanted, "backend", "BONSAI_ISA={} is not a level of this build; choose one of:{}",
        wanted ? wanted : "", names);
  check(best != nullptr, "backend",
        "this processor does not support x86-64-v2, the lowest level of this build");
  return *best;
}

KernelTable make_table(DType dtype, void (*fill)(KernelTable&)) {
  use_own_blas();  // runs the self-check once
  KernelTable table;
  table.for_each([&](const char* name, auto& kernel) {
    kernel.name = name;
    kernel.device = {};
    kernel.dtype = dtype;
  });
  fill(table);
  return table;
}

}  // namespace

const KernelTable& table(DType dtype) {
  static const KernelTable single = make_table(DType::f32, chosen_level().fill);
  static const KernelTable twice = make_table(DType::f64, f64::fill_table);
  return dtype == DType::f64 ? twice : single;
}

const CpuInfo& info() {
  static const CpuInfo known = [] {
    const auto by = [](bool own) { return own ? "own micro-kernel" : "BLAS"; };
    CpuInfo i{chosen_level().name,
              {},
              {},
              blas_description(),
              fmt::format("f32 by {}, f64 by {}, up to four rows by own GEMV",
                          by(chosen_level().prefers_own()), by(f64::prefers_own()))};
    for (const Level& level : kLevels) {
      i.levels.push_back(level.name);
      if (runs_here(level.name)) i.runnable.push_back(level.name);
    }
    return i;
  }();
  return known;
}

void* take_scratch(size_t bytes) { return pool({}).take(bytes); }
void give_back_scratch(void* block, size_t bytes) { pool({}).give_back(block, bytes); }

}  // namespace bonsai::cpu
