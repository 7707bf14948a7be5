#include "bonsai/framework/checks/check_op.h"

#include <fmt/format.h>

#include "bonsai/framework/checks/differentiate.h"
#include "bonsai/framework/checks/gradcheck.h"
#include "bonsai/framework/checks/mutate.h"
#include "bonsai/framework/checks/nonfinite.h"
#include "bonsai/framework/checks/taylor.h"
#include "bonsai/framework/ops/ops.h"

namespace bonsai {
namespace {

std::string difference(const Differentiated& a, const Differentiated& b, double tolerance,
                       const char* what) {
  std::string faults;
  const auto compare = [&](const std::string& name, const Tensor& x, const Tensor& y) {
    if (const double error = relative_error(x, y); !(error <= tolerance))
      faults += fmt::format("{}{} {}: error {:.2g} (at most {:.0e})", faults.empty() ? "" : "; ",
                            name, what, error, tolerance);
  };
  compare("the result", a.y, b.y);
  for (size_t i = 0; i < a.gradients.size(); ++i)
    compare(fmt::format("gradient {}", i), a.gradients[i], b.gradients[i]);
  return faults;
}

bool same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (!same_bits(a[i], b[i])) return false;
  return true;
}

std::string gradient(const OpCase& row) {
  const GradcheckReport report = gradcheck(row.name(), row.call, make_inputs(row, DType::f64));
  return report.passed() ? "" : report.text();
}

std::string slope(const OpCase& row) {
  const TaylorReport report = taylor(row.name(), row.call, make_inputs(row, DType::f64));
  return report.passed() ? "" : report.text();
}

std::string composed_form(const OpCase& row) {
  if (!row.composed) return "";
  for (const auto& [dtype, tolerance] : {std::pair{DType::f64, 1e-12}, {DType::f32, 1e-5}}) {
    const auto inputs = make_inputs(row, dtype, 2);
    const std::string fault =
        difference(differentiate(row.call, inputs), differentiate(row.composed, inputs), tolerance,
                   "differs from that of the composed form");
    if (!fault.empty()) return fault + " in " + name_of(dtype);
  }
  return "";
}

// f64 kernels are compiled once, f32 kernels per instruction-set level. Comparing the two extends what the
// other checks show in f64 to the f32 kernels.
std::string single_precision(const OpCase& row) {
  const Differentiated one = differentiate(row.call, make_inputs(row, DType::f32)),
                       two = differentiate(row.call, make_inputs(row, DType::f64));
  return difference(one, two, 1e-5, "in f32 differs from that in f64");
}

std::string dtypes(const OpCase& row) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    Differentiated all = differentiate(row.call, make_inputs(row, dtype));
    all.gradients.push_back(all.y);
    for (const Tensor& x : all.gradients)
      if (x.dtype() != dtype)
        return fmt::format("inputs are {}, but a result or gradient is {}", name_of(dtype),
                           name_of(x.dtype()));
  }
  return "";
}

// Changing an input or the result in place between forward and backward must throw an error that names the
// op or leave all gradients as they are; it must never change a gradient.
std::string saved_tensors(const OpCase& row) {
  const std::vector<Tensor> inputs = make_inputs(row, DType::f64);
  const std::vector<Tensor> right = differentiate(row.call, inputs).gradients;
  for (size_t victim = 0; victim <= inputs.size(); ++victim) {
    if (victim < inputs.size() && !differentiable(inputs[victim])) continue;
    Tape tape;
    const std::vector<Tensor> watched = watch_all(tape, make_inputs(row, DType::f64));
    const Tensor y = row.call(watched);
    Tensor changed = victim < inputs.size() ? watched[victim].detach() : y.detach();
    for (double& v : changed.mutable_span<double>()) v *= 2;
    try {
      tape.backward(y, random_tensor(y.shape(), y.dtype(), 99));
    } catch (const Error& e) {
      if (std::string_view(e.what()).find("changed in place") == std::string_view::npos) throw;
      continue;
    }
    if (!same(gradients_of(tape, watched), right))
      return fmt::format(
          "{} changed in place before the backward pass changes a gradient; save it by record()",
          victim < inputs.size() ? fmt::format("input {}", victim) : "the result");
  }
  return "";
}

// A Sink has two paths: the first write of a running gradient, and an addition to it.
std::string two_uses(const OpCase& row) {
  const auto inputs = make_inputs(row, DType::f64);
  const Tensor dy = random_tensor(row.call(inputs).shape(), DType::f64, 99);
  Differentiated once = differentiate(row.call, inputs, dy);
  for (Tensor& g : once.gradients) g = scale(g, 2);
  once.y = scale(once.y, 2);
  const Differentiated twice = differentiate(
      [&](const std::vector<Tensor>& in) { return add(row.call(in), row.call(in)); }, inputs, dy);
  return difference(twice, once, 1e-14, "of two uses differs from twice that of one");
}

// Jacobians run backward on a kept tape many times, so the first pass must not consume what it reads.
std::string kept_tape(const OpCase& row) {
  const auto inputs = make_inputs(row, DType::f64);
  const std::vector<Tensor> once = differentiate(row.call, inputs).gradients;
  Tape tape;
  const std::vector<Tensor> watched = watch_all(tape, inputs);
  const Tensor y = row.call(watched), dy = random_tensor(y.shape(), DType::f64, 99);
  for (int pass = 1; pass <= 3; ++pass) {
    tape.backward(y, dy, /*keep=*/true);
    if (!same(gradients_of(tape, watched), once))
      return fmt::format("backward pass {} of a kept tape gives other gradients than one pass", pass);
  }
  return "";
}

std::string finite(const OpCase& row) {
  NonfiniteTrace trace;
  const ScopedWatcher watch(trace);
  differentiate(row.call, make_inputs(row, DType::f32));
  return trace.text();
}

// If the gradient check misses a mutant of this row, the row's inputs do not prove its gradient right.
std::string mutants(const OpCase& row) {
  const MutationReport report = mutate(row);
  if (report.missed.empty() && report.caught >= 3) return "";
  return fmt::format(
      "the gradient check finds {} wrong gradients made on purpose and misses {}; choose other inputs: {}",
      report.caught, report.missed.size(), fmt::join(report.missed, ", "));
}

}  // namespace

std::span<const OpCheck> op_checks() {
  static constexpr OpCheck kChecks[] = {
      {"gradient", gradient}, {"slope", slope},       {"composed form", composed_form},
      {"f32", single_precision}, {"dtype", dtypes},   {"saved tensors", saved_tensors},
      {"two uses", two_uses}, {"kept tape", kept_tape}, {"finite", finite},
      {"mutants", mutants}};
  return kChecks;
}

OpReport check_op(const OpCase& row) {
  OpReport report{row.name(), {}};
  for (const OpCheck& check : op_checks()) {
    if (check.fault == mutants && !report.passed()) continue;  // mutants need right gradients
    std::string fault;
    try {
      fault = check.fault(row);
    } catch (const Error& e) {
      fault = e.what();
    }
    if (!fault.empty()) report.faults.push_back(fmt::format("{}: {}", check.name, fault));
  }
  return report;
}

std::string OpReport::text() const {
  std::string text = fmt::format("{}: {}\n", row, passed() ? "passed" : "FAILED");
  for (const std::string& fault : faults) text += "  " + fault + (fault.ends_with('\n') ? "" : "\n");
  return text;
}

}  // namespace bonsai
