// What the files of mutants share: how a mutant is put into the kernel table. Those of kernel_mutants.cpp and
// row_mutants.cpp are plain loops over float64; the formula stands beside each group, and what is changed is
// named as text.
#pragma once

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "bonsai/framework/autograd/dispatch.h"
#include "bonsai/framework/checks/mutate.h"

namespace bonsai::planting {

using Mutants = std::vector<KernelMutant>;

// The real kernels, whatever is planted.
const KernelTable& real();
int64_t& calls();

// A mutant of one entry of the table. F has the entry's arguments and captures nothing.
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

void add_elementwise_mutants(Mutants& all);  // of the list in backend/elementwise_list.h
void add_row_mutants(Mutants& all);          // of norms, softmax, tables, losses, attention

}  // namespace bonsai::planting
