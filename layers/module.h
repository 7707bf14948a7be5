// Modules form a tree. They own parameters and name them by path: "block.3.attention.query.weight".
//
// Parent and name are given at construction, so declaring a child registers it:
//
//   Linear query{this, "query", {.in = d_model, .out = d_model}};
//
// The root is given dtype, device and seed; children inherit them.
#pragma once

#include <deque>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "bonsai/framework/core/parameter.h"
#include "bonsai/layers/context.h"
#include "bonsai/layers/init.h"

namespace bonsai {

struct Build {
  DType dtype = DType::f32;
  Device device = {};
  uint64_t seed = 1;
  bool shapes_only = false;  // allocates no memory for parameters, so that they can be counted
  // Called before a parameter is allocated; may throw an Error to refuse the model.
  std::function<void(const std::string& path, const Shape& whole)> admit = {};
};

// Whether weight decay applies to a parameter. Matrices and embedding tables decay; biases, gains and
// temperatures do not, whatever their shape.
enum class Decay { no, yes };

class Module {
 public:
  explicit Module(const Build& build = {});  // a root
  Module(Module* parent, std::string name);  // an empty name adds nothing to the path
  virtual ~Module();                         // a parent must outlive its children
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  const std::string& path() const { return path_; }
  const Build& build() const { return build_; }
  const std::vector<Module*>& children() const { return children_; }

  std::vector<Parameter*> own_parameters();  // without those of children
  // Parameters of this module and its descendants, in the order of declaration.
  std::vector<Parameter*> parameters();
  Parameter& parameter(const std::string& path);  // the parameter with this path; Error if none

 protected:
  // Adds a parameter of shape `whole`, or `part` of it. The initial values depend only on (seed, path).
  Parameter& add_parameter(const std::string& name, const Shape& whole, const Initial& initial, Decay decay,
                           const Part& part = {});

 private:
  Module* parent_ = nullptr;
  std::string path_;
  Build build_;
  std::vector<Module*> children_;
  std::set<std::string_view> names_;  // paths of the children that have a name
  std::deque<Parameter> own_;
};

// A module that maps one tensor to one tensor. Call it as layer(x, context), so that errors, traces and
// profiles name the layer.
class Layer : public Module {
 public:
  using Module::Module;
  Tensor operator()(const Tensor& x, Context& context) {
    PathScope scope(path());
    if (context.watcher)
      context.watcher->called(*this, {x}, context,
                              [this](const auto& in, Context& c) { return (*this)(in[0], c); });
    return forward(x, context);
  }

  // Whether the output at a position depends only on the input at that position.
  virtual bool position_wise() const { return true; }

 protected:
  // What the layer computes; operator() calls it.
  virtual Tensor forward(const Tensor& x, Context& context) = 0;
};

// Number of elements of a shape, or of all parameters. A double, because a config may ask for more than an
// int64_t can count.
double element_count(const Shape& shape);
double element_count(Module& module);

// Copies the values of all parameters, converting the dtype. Throws Error unless paths and shapes are equal.
void copy_parameters(Module& from, Module& to);

}  // namespace bonsai
