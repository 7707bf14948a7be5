// The op table: inputs for every op of ops.h and for ops that other files add. Tests and `bonsai gradcheck`
// run the checks of check_op.h on every row. Tests also compare rows with reference files and report ops and
// kernels without a row.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bonsai/framework/core/tensor.h"

namespace bonsai {

// How an input is drawn. The seed is fixed, and the values are the same in f32 and f64.
struct Input {
  enum Kind { normal, positive, nonzero, distinct, ids, flags } kind = normal;
  Shape shape;
  double scaled_by = 1;
  int64_t limit = 0;  // ids are in [0, limit)

  // The same input with its values multiplied by a factor.
  Input scaled(double factor) const {
    Input i = *this;
    i.scaled_by = factor;
    return i;
  }
};

// A reference case of tests/fixtures: inputs by name and settings as text.
struct ReferenceCase {
  std::map<std::string, Tensor> inputs;
  std::map<std::string, std::string> settings;

  const Tensor& operator[](const std::string& input) const;
  bool has(const std::string& input) const { return inputs.count(input) > 0; }
  std::string text(const std::string& setting, const std::string& otherwise) const;
  double number(const std::string& setting, double otherwise) const;
};

struct OpCase {
  using Call = std::function<Tensor(const std::vector<Tensor>&)>;

  std::string op;                // the function
  std::string variant = {};      // what is special about this row
  std::vector<Input> inputs = {};
  Call call = {};
  Call composed = {};            // the same function written with simpler ops; may be empty
  std::function<Tensor(const ReferenceCase&)> reference = {};  // calls the op on a reference case

  std::string name() const { return variant.empty() ? op : op + " (" + variant + ")"; }
};

// All rows; those of add_op_case() come last.
const std::vector<OpCase>& op_cases();
// Adds a row for an op that is not in ops.h; call it in register_<file>(). Throws if the row lacks inputs or
// a call, or if the table has a row of the same name.
void add_op_case(OpCase row);
std::vector<Tensor> make_inputs(const OpCase& row, DType dtype, uint64_t seed = 1);

}  // namespace bonsai
