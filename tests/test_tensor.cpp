// An undefined tensor and an axis that does not exist are errors in every accessor and every op.
#include <climits>
#include <fstream>
#include <map>
#include <regex>
#include <set>

#include "bonsai/framework/checks/op_cases.h"
#include "bonsai/framework/ops/ops.h"
#include "bonsai/tests/support.h"

namespace bonsai::test {
namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Tensor, AnUndefinedOneHasNothingAndSaysSo) {
  Tensor none;
  EXPECT_FALSE(none);
  const std::vector<std::pair<const char*, std::function<void()>>> uses = {
      {"shape", [&] { none.shape(); }},
      {"shape", [&] { none.rank(); }},
      {"shape", [&] { none.size(0); }},
      {"shape", [&] { none.elements(); }},
      {"shape", [&] { none.checked_axis("op", 0); }},
      {"dtype", [&] { none.dtype(); }},
      {"device", [&] { none.device(); }},
      {"data", [&] { none.data(); }},
      {"data", [&] { none.mutable_data(); }},
      {"data", [&] { mut(none); }},
      {"values", [&] { none.values(); }},
      {"values", [&] { none.to(DType::f64); }},
      {"elements", [&] { none.alias({1}); }},
      {"elements", [&] { none.sole_owner(); }},
      {"storage", [&] { Tensor({}, 0, Shape{2}, DType::f32); }}};
  for (const auto& [what, use] : uses)
    EXPECT_EQ(error_of(use),
              "[tensor] an undefined tensor has no " + std::string(what) + "; give it a value first");
  for (const auto& use : std::vector<std::function<void()>>{
           [&] { none.copy(); }, [&] { empty_like(none); }, [&] { zeros_like(none); },
           [&] { copy_into(none, none); }})
    EXPECT_TRUE(has(error_of(use), "an undefined tensor has no"));
  EXPECT_EQ(error_of([&] { none.item(); }), "[item] needs a tensor with one element, got undefined tensor");
  EXPECT_EQ(error_of([&] { none.span<float>(); }),
            "[tensor] undefined tensor is not a f32 tensor on the host");
  EXPECT_FALSE(none.detach());
  EXPECT_FALSE(none.to(Device{}));
  EXPECT_EQ(view(none).data, nullptr);
}

TEST(Tensor, TheSizeOfAnAxisThatDoesNotExistIsAnError) {
  const Tensor x = zeros({2, 3});
  EXPECT_EQ(x.size(1), 3);
  EXPECT_EQ(x.size(-2), 2);
  EXPECT_EQ(error_of([&] { x.size(2); }),
            "[tensor] axis 2 does not exist in f32(2,3); choose 0 to 1, or -2 to -1 from the end");
  for (const int axis : {-3, 6, INT_MAX, INT_MIN})
    EXPECT_TRUE(has(error_of([&] { x.size(axis); }), "does not exist")) << axis;
  for (const int axis : {0, -1})
    EXPECT_EQ(error_of([&] { zeros({}).size(axis); }),
              "[tensor] axis " + std::to_string(axis) + " does not exist in f32(), which has no axes");
}

// The ops of ops.h that take an axis.
std::set<std::string> ops_with_axis() {
  std::set<std::string> names;
  std::ifstream header(BONSAI_SOURCE_DIR "/framework/ops/ops.h");
  const std::regex declaration(R"(^(?:Tensor|std::vector<Tensor>) (\w+)\(.*(?:int axis|axes\)))");
  std::smatch found;
  for (std::string line; std::getline(header, line);)
    if (std::regex_search(line, found, declaration)) names.insert(found[1]);
  return names;
}

TEST(Ops, EveryAxisThatDoesNotExistIsAnErrorOfTheOp) {
  const auto index = [](const Tensor& x) { return zeros(x.shape(), DType::i32); };
  const std::map<std::string, std::function<void(const Tensor&, int)>> calls = {
      {"sum", [](const Tensor& x, int axis) { sum(x, axis); }},
      {"mean", [](const Tensor& x, int axis) { mean(x, axis); }},
      {"max", [](const Tensor& x, int axis) { max(x, axis); }},
      {"argmax", [](const Tensor& x, int axis) { argmax(x, axis); }},
      {"variance", [](const Tensor& x, int axis) { variance(x, axis); }},
      {"cumsum", [](const Tensor& x, int axis) { cumsum(x, axis); }},
      {"gather", [&](const Tensor& x, int axis) { gather(x, axis, index(x)); }},
      {"scatter_add", [&](const Tensor& x, int axis) { scatter_add(x, axis, index(x), x); }},
      {"slice", [](const Tensor& x, int axis) { slice(x, axis, 0, 1); }},
      {"concat", [](const Tensor& x, int axis) { concat({x, x}, axis); }},
      {"split", [](const Tensor& x, int axis) { split(x, axis, {1, 1}); }},
      {"permute", [](const Tensor& x, int axis) {
         std::vector<int> axes{axis};
         for (int i = 0; i < x.rank(); ++i)
           if (i != axis) axes.push_back(i);
         permute(x, axes);
       }}};
  std::set<std::string> names;
  for (const auto& [op, call] : calls) names.insert(op);
  EXPECT_EQ(names, ops_with_axis());
  for (const auto& [op, call] : calls)
    for (int rank = 0; rank <= 3; ++rank) {
      const std::vector<int64_t> sizes(static_cast<size_t>(rank), 2);
      const Tensor x = zeros(Shape(std::span(sizes)));
      for (int axis = 0; axis < rank; ++axis)
        EXPECT_EQ(error_of([&] { call(x, axis); }), "no error") << op << " " << axis;
      for (const int axis : {rank, rank + 1, -rank - 1, INT_MAX, INT_MIN}) {
        const std::string wanted =
            "[" + op + "] axis " + std::to_string(axis) + " does not exist in " + x.describe();
        EXPECT_TRUE(has(error_of([&] { call(x, axis); }), wanted)) << op << " " << axis;
      }
    }
}

TEST(Ops, AnAxisThatIsNamedTwiceIsAnError) {
  const Tensor x = zeros({2, 3, 4});
  for (const std::vector<int>& axes : {std::vector{0, 1, 1}, {0, -3, 1}, {2, 1}, {0, 1, 2, 0}, {}})
    EXPECT_TRUE(has(error_of([&] { permute(x, axes); }), "of f32(2,3,4), each of which must be named once"));
  EXPECT_TRUE(has(error_of([&] { einsum("iij,jk->ik", x, zeros({4, 2})); }), "name each axis once"));
}

// Replaces each input of each row of the op table in turn. An undefined tensor is an error unless the input
// is optional; a scalar gives an error or a result.
TEST(Ops, AnInputWithoutAValueOrAxesIsAnErrorAndNotACrash) {
  for (const OpCase& row : op_cases())
    for (size_t i = 0; i < row.inputs.size(); ++i) {
      std::vector<Tensor> inputs = make_inputs(row, DType::f32);
      const DType dtype = std::exchange(inputs[i], Tensor()).dtype();
      const std::string error = error_of([&] { row.call(inputs); });
      const bool optional = row.op == "linear" || row.op == "layer_norm" || i == 3;  // 3: attention bias
      EXPECT_TRUE(has(error, "undefined tensor") || (optional && error == "no error"))
          << row.name() << " input " << i << ": " << error;
      inputs[i] = zeros({}, dtype);
      EXPECT_NE(error_of([&] { row.call(inputs); }), "") << row.name() << " input " << i;
    }
}

}  // namespace
}  // namespace bonsai::test
