#include "bonsai/framework/autograd/arena.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <algorithm>
#include <set>

#include "bonsai/framework/autograd/dispatch.h"

namespace bonsai {

ParameterArena::ParameterArena(std::vector<Parameter*> parameters) : parameters_(std::move(parameters)) {
  std::set<Parameter*> seen;  // a tied parameter may be listed twice
  std::erase_if(parameters_, [&](Parameter* p) { return !p->trainable || !seen.insert(p).second; });
  std::stable_partition(parameters_.begin(), parameters_.end(), [](Parameter* p) { return p->decay; });
  if (parameters_.empty()) return;
  const Tensor& first = parameters_[0]->value;
  std::vector<int64_t> starts;
  int64_t end = 0;
  for (Parameter* p : parameters_) {
    check(p->value.dtype() == first.dtype() && p->value.device() == first.device(), "arena",
          "parameters differ in dtype or device: {} and {}", first, p->value);
    starts.push_back(end);
    end += (p->value.elements() + kAlignment - 1) / kAlignment * kAlignment;
  }
  values_ = zeros({end}, first.dtype(), first.device());
  gradients_ = zeros_like(values_);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    Parameter* p = parameters_[i];
    Tensor value = values_.alias(p->value.shape(), starts[i]);
    Tensor grad = gradients_.alias(p->value.shape(), starts[i]);
    copy_into(p->value, value);
    if (p->contributions) copy_into(p->grad, grad);
    p->value = value.with_parameter(p);
    p->grad = grad;
  }
  // Return the values' old storage to the system: it is as large as the arena, and few activations fit its
  // size classes.
  pool(values_.device()).trim();
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
}

Tensor& ParameterArena::gradients() {
  for (Parameter* p : parameters_)
    if (p->contributions == 0) kernels(p->grad).fill(mut(p->grad), 0);
  return gradients_;
}

void ParameterArena::zero_gradients() {
  for (Parameter* p : parameters_) p->zero_gradient();
}

}  // namespace bonsai
