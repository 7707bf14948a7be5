// Mutants: gradients made wrong on purpose, to see whether the gradient check finds them.
//
// For every gradient that an op gives for an input: its sign, a factor of 1.001, the whole term left out,
// each pair of axes of equal size swapped, each axis read one index off. For every kernel that a backward
// calls: what kernel_mutants() lists, each term of a sum left out among them; those of the elementwise
// kernels are made from their functors, the others stand beside their formula. A mutant that changes no
// gradient of the row is equivalent: it is named with the reason and counts neither way.
#pragma once

#include <set>

#include "bonsai/framework/checks/op_cases.h"
#include "bonsai/framework/checks/probe.h"

namespace bonsai {

// A kernel of backward with a part of its formula changed.
struct KernelMutant {
  std::string kernel, change;               // "max_backward", "not shared among ties"
  std::string otherwise;                    // why it may change no gradient
  std::function<void(KernelTable&)> plant;  // in float64
};
// All of them.
const std::vector<KernelMutant>& kernel_mutants();
int64_t planted_calls();  // of planted kernels, by this thread

struct MutationReport {
  std::string row;
  int64_t caught = 0;
  std::vector<std::string> missed;
  std::vector<std::string>
      equivalent;  // "tanh 0 input 0: axes 0 and 2 swapped (the gradient is symmetric in them)"
  std::set<std::string> effective;  // kernel mutants that changed a gradient here, "kernel: change"
};

// Makes the gradients of a row wrong in every way above. Throws if they are wrong already.
MutationReport mutate(const OpCase& row);

}  // namespace bonsai
