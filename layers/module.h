// Modules own parameters and name them by where they stand: "block.3.attention.query.weight".
//
// Parent and name are given at construction, so declaring a child registers it:
//
//   Linear query{this, "query", {.in = d_model, .out = d_model}};
//
// The root takes the dtype, device and seed, and children inherit them: no layer names them.
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
  bool shapes_only = false;  // parameters have shapes but no elements: to count them
  // Is told of each parameter before memory is asked for it; an Error that it throws ends the building.
  std::function<void(const std::string& path, const Shape& whole)> admit = {};
};

// Whether weight decay shrinks a parameter. Weights of products and tables decay; biases, gains and temperatures do not,
// whatever their shape.
enum class Decay { no, yes };

class Module {
 public:
  explicit Module(const Build& build = {});   // a root
  Module(Module* parent, std::string name);   // an empty name adds nothing to the path
  virtual ~Module();                          // a parent outlives its children
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  const std::string& path() const { return path_; }
  const Build& build() const { return build_; }
  const std::vector<Module*>& children() const { return children_; }

  std::vector<Parameter*> own_parameters();  // without those of children
  // Those of this module and all below it, each once, in the order of declaration.
  std::vector<Parameter*> parameters();
  Parameter& parameter(const std::string& path);  // by its whole path; an error where there is none

 protected:
  // A new parameter, whose first values depend on (seed, path) alone. A part has its elements of the whole.
  Parameter& add_parameter(const std::string& name, const Shape& whole, const Initial& initial, Decay decay,
                           const Part& part = {});

 private:
  Module* parent_ = nullptr;
  std::string path_;
  Build build_;
  std::vector<Module*> children_;
  std::set<std::string_view> names_;  // paths of children that have a name
  std::deque<Parameter> own_;
};

// Whatever maps one tensor to one tensor; what a YAML file can name is one of these. Called as
// layer(x, context), which makes errors, traces and profiles name the layer.
class Layer : public Module {
 public:
  using Module::Module;
  Tensor operator()(const Tensor& x, Context& context) {
    PathScope scope(path());
    if (context.watcher)
      context.watcher->called(*this, {x}, context, [this](const auto& in, Context& c) { return (*this)(in[0], c); });
    return forward(x, context);
  }

  // Whether the output at a position depends on the input at that position alone.
  virtual bool position_wise() const { return true; }

 protected:
  virtual Tensor forward(const Tensor& x, Context& context) = 0;
};

// Elements of a shape or of all parameters, of which a config may claim more than an int64_t holds.
double element_count(const Shape& shape);
double element_count(Module& module);

// Copies values by path, converting the dtype: how a float64 twin gets its weights.
void copy_parameters(Module& from, Module& to);

}  // namespace bonsai
