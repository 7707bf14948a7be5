// Turns a function of tensors into the scalar sum(y * c) with a random c, and evaluates it along lines
// through its inputs and parameters. c must be random: the plain sum of a softmax or a layer norm has
// gradient 0, so a wrong backward function would pass.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bonsai/framework/autograd/tape.h"
#include "bonsai/framework/core/rng.h"

namespace bonsai {

struct KernelTable;

// Must return the same floating y for the same inputs: draw dropout from a fixed key.
using DifferentiableFunction = std::function<Tensor(const std::vector<Tensor>&)>;

class Probe {
 public:
  // A tensor whose gradient is checked: a floating input or a parameter.
  struct Target {
    std::string name;  // "input 0", "block.0.attention.query.weight"
    Tensor value;      // f64; the function reads this memory, so writing to it moves the point
    Parameter* parameter = nullptr;
    std::string reader = "";  // the first op that reads it; empty if no op does
  };

  // All floating inputs and all parameters must be f64, on one device; other inputs are passed through.
  Probe(const DifferentiableFunction& f, const std::vector<Tensor>& inputs,
        const std::vector<Parameter*>& parameters, uint64_t seed);

  // The scalar at the present values of the targets.
  double value() const;
  // The gradients of all targets by a backward pass. `plant` changes the kernel table during backward only.
  std::vector<Tensor> gradients(const std::function<void(KernelTable&)>& plant = {});

  std::vector<Target> targets;
  std::vector<Tape::Entry> entries;  // what gradients() recorded

 private:
  DifferentiableFunction f_;
  std::vector<Tensor> inputs_;
  std::vector<double> cotangent_;
  Shape shape_;
};

// The function along x + t v. The destructor restores x.
class Line {
 public:
  Line(const Probe& probe, const Tensor& x, int64_t element);  // v is a unit vector along one element
  // v has normal values in all elements of all tensors x.
  Line(const Probe& probe, std::vector<Tensor> x, RandomKey key);
  ~Line();
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  double operator()(double t) const;
  double slope(double step) const;  // five-point difference at t = 0 with a step of step * size()
  double dot(const std::vector<Tensor>& gradients) const;  // sum of g * v
  // max(1, |element|), or for a random direction max(0.05, root mean square of x).
  double size() const { return size_; }

 private:
  void move(double t) const;

  const Probe& probe_;
  std::vector<Tensor> x_;
  std::vector<std::vector<double>> origin_, direction_;
  int64_t element_ = -1;
  double size_ = 1;
};

}  // namespace bonsai
