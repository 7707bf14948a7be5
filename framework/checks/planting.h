// Puts mutants into a kernel table. Mutants in kernel_mutants.cpp and row_mutants.cpp are plain loops in f64;
// a comment gives the formula of each group, and a string says what the mutant changes.
#pragma once

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "bonsai/framework/autograd/dispatch.h"
#include "bonsai/framework/checks/mutate.h"

namespace bonsai::planting {

using Mutants = std::vector<KernelMutant>;

// The real kernels, also while mutants are planted.
const KernelTable& real();
int64_t& calls();

// Adds a mutant of one entry of the table. F takes the entry's arguments and must capture nothing.
template <class... Args, class F>
void add(Mutants& all, Kernel<void(Args...)> KernelTable::*entry, const char* change, F,
         const char* otherwise = "") {
  static_assert(std::is_empty_v<F>);
  all.push_back({(real().*entry).name, change, otherwise, [entry](KernelTable& table) {
                   (table.*entry).run = [](Args... args) {
                     ++calls();
                     F{}(args...);
                   };
                 }});
}

void add_elementwise_mutants(Mutants& all);  // for the list in backend/elementwise_list.h
void add_row_mutants(Mutants& all);          // for norms, softmax, tables, losses and attention

}  // namespace bonsai::planting
