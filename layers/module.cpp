#include "bonsai/layers/module.h"

#include <algorithm>

#include "bonsai/framework/autograd/fill.h"

namespace bonsai {
namespace {

// A tensor without memory, whose elements must not be read.
Tensor shape_alone(const Shape& shape, DType dtype) {
  static const auto nowhere =
      std::make_shared<Storage>(nullptr, SIZE_MAX, Device{}, std::make_shared<int>(), /*read_only=*/true);
  return {nowhere, 0, shape, dtype};
}

}  // namespace

Module::Module(const Build& build) : build_(build) {}

Module::Module(Module* parent, std::string name)
    : parent_(parent),
      path_(parent->path_.empty() ? name : name.empty() ? parent->path_ : parent->path_ + "." + name),
      build_(parent->build_) {
  check(name.empty() || parent->names_.insert(path_).second, "module", "there are two children named {}",
        path_);
  parent->children_.push_back(this);
}

Module::~Module() {
  if (!parent_) return;
  parent_->names_.erase(path_);
  auto& children = parent_->children_;  // searched from the end: members are destroyed in reverse order
  children.erase(std::find(children.rbegin(), children.rend(), this).base() - 1);
}

std::vector<Parameter*> Module::own_parameters() {
  std::vector<Parameter*> all;
  for (Parameter& p : own_) all.push_back(&p);
  return all;
}

std::vector<Parameter*> Module::parameters() {
  std::vector<Parameter*> all = own_parameters();
  for (Module* child : children_) {
    const auto below = child->parameters();
    all.insert(all.end(), below.begin(), below.end());
  }
  return all;
}

Parameter& Module::parameter(const std::string& path) {
  for (Parameter* p : parameters())
    if (p->path == path) return *p;
  fail("module", "there is no parameter {}", path);
}

Parameter& Module::add_parameter(const std::string& name, const Shape& whole, const Initial& initial,
                                 Decay decay, const Part& part) {
  const std::string path = path_.empty() ? name : path_ + "." + name;
  if (build_.admit) build_.admit(path, whole);
  const Tensor value = build_.shapes_only ? shape_alone(whole, build_.dtype)
                                          : initial_tensor(whole, initial, build_.dtype, build_.device,
                                                           random_key(build_.seed, path), part);
  return own_.emplace_back(path, value, decay == Decay::yes);
}

double element_count(const Shape& shape) {
  double count = 1;
  for (int axis = 0; axis < shape.rank; ++axis) count *= static_cast<double>(shape[axis]);
  return count;
}

double element_count(Module& module) {
  double count = 0;
  for (const Parameter* p : module.parameters()) count += element_count(p->value.shape());
  return count;
}

void copy_parameters(Module& from, Module& to) {
  const auto sources = from.parameters(), targets = to.parameters();
  check(sources.size() == targets.size(), "copy_parameters", "the modules have {} and {} parameters",
        sources.size(), targets.size());
  for (size_t i = 0; i < sources.size(); ++i) {
    const Parameter& source = *sources[i];
    Parameter& target = *targets[i];
    check(source.path == target.path && source.value.shape() == target.value.shape(), "copy_parameters",
          "{} does not match {}", source.value, target.value);
    copy_into(source.value.to(target.value.dtype()), target.value);
  }
}

}  // namespace bonsai
