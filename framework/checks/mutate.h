// Mutants: gradients made wrong on purpose, to test that the gradient check finds them.
//
// Each gradient that an op returns for an input is changed in several ways: sign flipped, multiplied by
// 1.001, set to zero, axes of equal size swapped, an axis shifted by one index. Each kernel that a backward
// function calls is replaced by its mutants in kernel_mutants(), which leave out a term of its formula or
// change an index. Mutants of elementwise kernels are made from their functors; the others are listed beside
// their formula. A mutant that changes no gradient of the row is equivalent: it is reported with the reason
// and counts neither as caught nor as missed.
#pragma once

#include <set>

#include "bonsai/framework/checks/op_cases.h"
#include "bonsai/framework/checks/probe.h"

namespace bonsai {

// A kernel of a backward function with a part of its formula changed.
struct KernelMutant {
  std::string kernel, change;               // "max_backward", "not shared among ties"
  std::string otherwise;                    // why it may change no gradient; empty if it always does
  std::function<void(KernelTable&)> plant;  // puts the mutant into an f64 kernel table
};
// All kernel mutants.
const std::vector<KernelMutant>& kernel_mutants();
int64_t planted_calls();  // number of calls of planted kernels by this thread

struct MutationReport {
  std::string row;
  int64_t caught = 0;
  std::vector<std::string> missed;
  // "tanh 0 input 0: axes 0 and 2 swapped (the gradient is symmetric in them)"
  std::vector<std::string> equivalent;
  std::set<std::string> effective;  // kernel mutants that changed a gradient here, "kernel: change"
};

// Checks a row's gradients with every mutant in turn. Throws if the gradients are wrong without one.
MutationReport mutate(const OpCase& row);

}  // namespace bonsai
