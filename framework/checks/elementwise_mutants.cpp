// Mutants of the elementwise kernels, made from their functors: one operation of the gradient is altered, the
// saved tensor is replaced, or dy is returned unchanged.
//
// The functors are templates of their scalar type. Number is a scalar whose operations can be altered. Its
// mathematical functions must be declared before the functors that call them, hence the order of the
// includes.
#include <cmath>

#include "bonsai/framework/backend/math.h"

namespace bonsai {
namespace {

// Which operation of the gradient to alter, counted in order of execution, and how.
struct Alteration {
  int at = -1;
  bool second = false;  // leaves out the second operand instead of the first
  int seen = 0;
  const char* met = nullptr;  // the symbol of the operation that was altered

  bool here(const char* symbol) {
    if (seen++ != at) return false;
    met = symbol;
    return true;
  }
};
thread_local Alteration alteration;

struct Number {
  double v;
  constexpr Number(double v) : v(v) {}

  friend Number operator-(Number a) { return alteration.here("unary -") ? a : Number(-a.v); }
  friend Number operator+(Number a, Number b) { return of("+", a.v + b.v, b.v, a.v); }
  friend Number operator-(Number a, Number b) { return of("-", a.v - b.v, -b.v, a.v); }
  friend Number operator*(Number a, Number b) { return of("*", a.v * b.v, b.v, a.v); }
  friend Number operator/(Number a, Number b) { return of("/", a.v / b.v, 1 / b.v, a.v); }
  friend bool operator<(Number a, Number b) { return alteration.here("<") != (a.v < b.v); }
  friend bool operator>(Number a, Number b) { return alteration.here(">") != (a.v > b.v); }

 private:
  static Number of(const char* symbol, double both, double without_first, double without_second) {
    if (!alteration.here(symbol)) return both;
    return alteration.second ? without_second : without_first;
  }
};

}  // namespace

inline namespace BONSAI_LEVEL {
namespace math {
inline Number exp(Number x) { return exp(x.v); }
inline Number near_exp(Number x) { return near_exp(x.v); }
inline Number log(Number x) { return log(x.v); }
inline Number sqrt(Number x) { return sqrt(x.v); }
inline Number sin(Number x) { return sin(x.v); }
inline Number cos(Number x) { return cos(x.v); }
inline Number tanh(Number x) { return tanh(x.v); }
inline Number erf(Number x) { return erf(x.v); }
inline Number sigmoid(Number x) { return sigmoid(x.v); }
inline Number logistic(Number x) { return logistic(x.v); }
}  // namespace math
}  // namespace BONSAI_LEVEL
}  // namespace bonsai

#include "bonsai/framework/backend/elementwise.h"
#include "bonsai/framework/checks/planting.h"

namespace bonsai::planting {
namespace {

enum class Saves { none, x, y };
enum class Domain { real, positive, nonzero, step };

enum class Change { operation, saved, passed_on };

// The mutant that is planted on this thread.
struct Planted {
  Change change = Change::operation;
  int at = -1;
  bool second = false;
};
thread_local Planted planted;

template <class F>
double changed_gradient(double saved, double dy) {
  if (planted.change == Change::passed_on) return dy;
  const double s = planted.change == Change::saved ? F::forward(saved) : saved;
  alteration = {planted.at, planted.second};
  return F::backward(Number(s), Number(s), Number(dy)).v;
}

template <class F>
void changed_kernel(View saved, View dy, MutView dx) {
  ++calls();
  for (int64_t i = 0; i < dy.shape.elements(); ++i)
    dx.as<double>()[i] = changed_gradient<F>(saved.as<double>()[i], dy.as<double>()[i]);
}

// The gradient at a few points. Mutants that agree at all of them count as one.
template <class F>
std::vector<double> at_points(const Planted& mutant, Saves saves, Domain domain) {
  planted = mutant;
  std::vector<double> values;
  for (const double x : {0.3, 0.9, 2.1, -0.3, -0.9, -2.1})
    if (x > 0 || domain != Domain::positive)
      values.push_back(changed_gradient<F>(saves == Saves::y ? F::forward(x) : x, 0.7));
  return values;
}

template <class F>
void add_elementwise(Mutants& all, Kernel<void(View, View, MutView)> KernelTable::*entry, Saves saves,
                     Domain domain) {
  std::vector<std::vector<double>> known = {at_points<F>({}, saves, domain)};
  const int operations = alteration.seen;
  const auto add_once = [&](const Planted& mutant, const std::string& change) {
    const std::vector<double> values = at_points<F>(mutant, saves, domain);
    if (std::find(known.begin(), known.end(), values) != known.end()) return;
    known.push_back(values);
    all.push_back({(real().*entry).name, change, "", [entry, mutant](KernelTable& table) {
                     planted = mutant;
                     (table.*entry).run = changed_kernel<F>;
                   }});
  };
  for (int k = 0; k < operations; ++k)
    for (const bool second : {false, true}) {
      at_points<F>({Change::operation, k, second}, saves, domain);
      add_once({Change::operation, k, second},
               fmt::format("{} (operation {} of {}): operand {} left out", alteration.met, k + 1,
                           operations, second ? 2 : 1));
    }
  if (saves != Saves::none) add_once({Change::saved}, saves == Saves::x ? "y for x" : "forward(y) for y");
  add_once({Change::passed_on}, "dy passed on");
}

}  // namespace

void add_elementwise_mutants(Mutants& all) {
#define OP(name, functor, saves, domain) \
  add_elementwise<functor>(all, &KernelTable::name##_backward, Saves::saves, Domain::domain);
  BONSAI_ELEMENTWISE(OP)
#undef OP
}

}  // namespace bonsai::planting
