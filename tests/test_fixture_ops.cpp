// Every op against reference values from PyTorch: results and gradients, to 1e-10 in f64 and 1e-5 in f32.
#include "bonsai/tests/fixture.h"

namespace bonsai::test {
namespace {

const OpCase* row_for(const std::string& op) {
  for (const OpCase& row : op_cases())
    if (row.op == op && row.reference) return &row;
  return nullptr;
}

TEST(FixtureOps, AgreeWithPyTorch) {
  const auto names = fixture_names("ops");
  ASSERT_GE(names.size(), 28u);
  for (const std::string& name : names) {
    Fixture f(name);
    const OpCase* row = row_for(f.setting("op"));
    ASSERT_NE(row, nullptr) << name << ": the op table has no reference for op " << f.setting("op");
    for (const DType dtype : {DType::f64, DType::f32}) {
      Tape tape;
      const ReferenceCase c = f.inputs(tape, dtype);
      f.expect_all(tape, c, row->reference(c), dtype);
    }
    expect_all_read(f, name);
    printf("%s\n", name.c_str());
  }
}

}  // namespace
}  // namespace bonsai::test
