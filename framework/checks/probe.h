// A function as the checks see it: the scalar sum(y * c) of its result, c random, along lines through its
// inputs and parameters. A random c matters: the plain sum of a softmax or a layer norm has gradient 0
// whatever backward says.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bonsai/framework/autograd/tape.h"
#include "bonsai/framework/core/rng.h"

namespace bonsai {

struct KernelTable;

// Must give the same floating y for the same inputs (draw dropout from a fixed key).
using DifferentiableFunction = std::function<Tensor(const std::vector<Tensor>&)>;

class Probe {
 public:
  // What a gradient is taken of: a floating input, or a parameter.
  struct Target {
    std::string name;  // "input 0", "block.0.attention.query.weight"
    Tensor value;      // f64; what is written here, the function sees
    Parameter* parameter = nullptr;
    std::string reader = "";  // the op that reads it; empty: none does
  };

  // All floating inputs and all parameters must be f64, on one device; other inputs are passed through.
  Probe(const DifferentiableFunction& f, const std::vector<Tensor>& inputs,
        const std::vector<Parameter*>& parameters, uint64_t seed);

  // The scalar, computed from the present values of the targets.
  double value() const;
  // The gradient of every target, by backward. A plant changes kernels while backward runs, and only then.
  std::vector<Tensor> gradients(const std::function<void(KernelTable&)>& plant = {});

  std::vector<Target> targets;
  std::vector<Tape::Entry> entries;  // what gradients() recorded

 private:
  DifferentiableFunction f_;
  std::vector<Tensor> inputs_;
  std::vector<double> cotangent_;
  Shape shape_;
};

// The function along x + t v; x is put back when the line goes.
class Line {
 public:
  Line(const Probe& probe, const Tensor& x, int64_t element);  // v is one element
  Line(const Probe& probe, std::vector<Tensor> x,
       RandomKey key);  // v is normal in every element of all these
  ~Line();
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  double operator()(double t) const;
  double slope(double step) const;                         // by five points; its error falls with step^4
  double dot(const std::vector<Tensor>& gradients) const;  // sum of g * v
  double size() const { return size_; }  // |x| but at least 1, or the spread of x but at least 0.05

 private:
  void move(double t) const;

  const Probe& probe_;
  std::vector<Tensor> x_;
  std::vector<std::vector<double>> origin_, direction_;
  int64_t element_ = -1;
  double size_ = 1;
};

}  // namespace bonsai
