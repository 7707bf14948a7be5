// Compares broadcasting with brute force. If a bias, a mask or a scale is broadcast over a batch, its
// gradient must have its own shape and be summed over the right axes.
#include "bonsai/framework/ops/ops.h"
#include "bonsai/tests/support.h"

namespace bonsai::test {
namespace {

using Binary = Tensor (*)(const Tensor&, const Tensor&);

Tensor ones(const Shape& shape) { return full(shape, 1, DType::f64); }

// B09: the upstream gradient is 1 everywhere.
TEST(Broadcast, AStretchedOperandGetsTheSumInItsOwnShape) {
  const struct {
    Binary op;
    Shape a, b;
    double da, db;
  } rows[] = {{mul, {}, {2}, 2, 1},
              {mul, {2, 1, 4, 64}, {2, 1, 4, 1}, 1, 64},
              {add, {3, 4}, {1, 4}, 1, 3},
              {add, {2, 3, 4}, {4}, 1, 6},
              {mul, {3, 1}, {1, 4}, 4, 3}};
  for (const auto& row : rows) {
    const Result r =
        differentiate([&](const std::vector<Tensor>& in) { return row.op(in[0], in[1]); },
                      {ones(row.a), ones(row.b)},
                                   ones(broadcast("test", row.a, row.b)));
    EXPECT_EQ(relative_error(r.gradients[0], full(row.a, row.da, DType::f64)), 0) << row.a.str() << " "
        << row.b.str();
    EXPECT_EQ(relative_error(r.gradients[1], full(row.b, row.db, DType::f64)), 0) << row.a.str() << " "
        << row.b.str();
  }
}

// Index, in a tensor of shape `from` that is broadcast to `to`, of element `flat` of the result.
size_t source(int64_t flat, const Shape& to, const Shape& from) {
  int64_t at = 0, step = 1;
  for (int i = 1; i <= to.rank; ++i) {
    const int64_t index = flat % to[-i];
    flat /= to[-i];
    if (i > from.rank) continue;
    if (from[-i] != 1) at += index * step;
    step *= from[-i];
  }
  return static_cast<size_t>(at);
}

Tensor stretched(const Tensor& x, const Shape& to) {
  const auto in = x.values();
  std::vector<double> out;
  for (int64_t i = 0; i < to.elements(); ++i) out.push_back(in[source(i, to, x.shape())]);
  return tensor(to, out, x.dtype());
}

Tensor summed(const Tensor& x, const Shape& to) {
  const auto in = x.values();
  std::vector<double> out(static_cast<size_t>(to.elements()));
  for (int64_t i = 0; i < x.elements(); ++i) out[source(i, x.shape(), to)] += in[static_cast<size_t>(i)];
  return tensor(to, out, x.dtype());
}

bool fits(const Shape& a, const Shape& b) {
  for (int i = 1; i <= std::min(a.rank, b.rank); ++i)
    if (a[-i] != b[-i] && a[-i] != 1 && b[-i] != 1) return false;
  return true;
}

const Shape kShapes[] =
    {{},           {0},          {1},          {2},          {3},          {1, 1},       {1, 3},
                         {2, 1},       {2, 3},       {0, 3},       {3, 0},       {1, 0},       {2, 1, 3},
                         {1, 2, 1},
                         {3, 2, 3},    {3, 1, 1},    {1, 1, 3},    {2, 0, 3},    {3, 2, 1},    {2, 3, 2, 3},
                         {1, 3, 1, 3},
                         {2, 1, 2, 1}, {2, 3, 1, 1}, {1, 1, 2, 3}, {2, 1, 1, 3}, {1, 1, 1, 1}, {2, 0, 1, 3}};

// The reference is f of explicitly stretched inputs, which needs no broadcasting and no summation.
void expect_as_stretched(const std::string& name, const std::function<Tensor(const std::vector<Tensor>&)>& f,
                         const std::vector<Tensor>& inputs, const Shape& to) {
  std::vector<Tensor> full_size;
  for (const Tensor& x : inputs)
    full_size.push_back(x.dtype() == DType::i32 ? stretched(x, to) : mul(stretched(x, to), ones(to)));
  const Tensor dy = random_tensor(to, DType::f64, 7);
  const Result got = differentiate(f, inputs, dy), right = differentiate(f, full_size, dy);
  std::string shapes = name;
  for (const Tensor& x : inputs) shapes.append(" ").append(x.shape().str());
  EXPECT_TRUE(same_bits(got.y, right.y)) << shapes;
  size_t i = 0;
  for (const Tensor& x : inputs) {
    if (!differentiable(x)) continue;
    EXPECT_LE(relative_error(got.gradients[i], summed(right.gradients[i], x.shape())), 1e-13) << shapes
        << " operand " << i;
    ++i;
  }
}

TEST(Broadcast, EveryPairOfShapesEqualsItsStretchedForm) {
  const struct {
    const char* name;
    Binary op;
  } ops[] = {{"add", add}, {"sub", sub}, {"mul", mul}, {"div", div}};
  int pairs = 0;
  for (const Shape& a : kShapes)
    for (const Shape& b : kShapes) {
      if (!fits(a, b)) continue;
      const std::vector<Tensor> inputs = {random_tensor(a, DType::f64, 1), random_tensor(b, DType::f64, 2)};
      for (const auto& op : ops)
        expect_as_stretched(op.name, [&](const std::vector<Tensor>& in) { return op.op(in[0], in[1]); },
                            inputs,
                            broadcast("test", a, b));
      ++pairs;
    }
  EXPECT_GT(pairs, 250);
}

TEST(Broadcast, EveryTripleOfAWhereEqualsItsStretchedForm) {
  const Shape conditions[] = {{}, {3}, {2, 1}, {1, 2, 3}, {2, 1, 1, 3}, {0}};
  int triples = 0;
  for (const Shape& c : conditions)
    for (const Shape& a : kShapes)
      for (const Shape& b : kShapes) {
        if (!fits(a, b) || !fits(c, broadcast("test", a, b))) continue;
        const Shape to = broadcast("test", c, broadcast("test", a, b));
        std::vector<double> flags;
        // 0 is false; any other value is true.
        for (int64_t i = 0; i < c.elements(); ++i) flags.push_back(i % 3 == 0 ? -2 : i % 3 - 1);
        expect_as_stretched("where", [](const std::vector<Tensor>& in) { return where(in[0], in[1], in[2]); },
                            {tensor(c, flags, DType::i32), random_tensor(a, DType::f64, 1),
                             random_tensor(b, DType::f64, 2)}, to);
        ++triples;
      }
  EXPECT_GT(triples, 700);
}

TEST(Broadcast, ShapesThatDoNotFitAreBothNamed) {
  for (const Shape& a : kShapes)
    for (const Shape& b : kShapes) {
      if (fits(a, b)) continue;
      const Tensor x = zeros(a), y = zeros(b), condition = zeros({}, DType::i32);
      const std::pair<std::string, std::string> errors[] = {
          {"[add]", error_of([&] { add(x, y); })},
          {"[sub]", error_of([&] { sub(x, y); })},
          {"[mul]", error_of([&] { mul(x, y); })},
          {"[div]", error_of([&] { div(x, y); })},
          {"[where]", error_of([&] { where(condition, x, y); })}};
      for (const auto& [op, error] : errors)
        EXPECT_EQ(error, op + " shapes do not broadcast: " + a.str() + " and " + b.str());
    }
}

TEST(Broadcast, OperandsOfTwoTypesAreRefused) {
  const Tensor x = zeros({2}), y = zeros({2}, DType::f64), ids = zeros({2}, DType::i32);
  for (const Binary op : {add, sub, mul, div}) {
    const std::string error = error_of([&] { op(x, y); });
    EXPECT_NE(error.find("f32(2) and f64(2)"), std::string::npos) << error;
    EXPECT_NE(error_of([&] { op(ids, ids); }).find("i32(2)"), std::string::npos);
    EXPECT_NE(error_of([&] { op(x, {}); }).find("undefined"), std::string::npos);
  }
  EXPECT_NE(error_of([&] { where(x, x, x); }).find("must be i32"), std::string::npos);
}

}  // namespace
}  // namespace bonsai::test
