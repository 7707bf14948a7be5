// A tensor's values as text (B68), as NumPy prints them with precision 4.
#include "bonsai/framework/core/tensor_text.h"
#include "bonsai/framework/core/parameter.h"
#include "bonsai/tests/support.h"

namespace bonsai::test {
namespace {

std::vector<double> range(int count, double first = 0, double step = 1) {
  std::vector<double> values;
  for (int i = 0; i < count; ++i) values.push_back(first + step * i);
  return values;
}

TEST(TensorText, NumbersAreAlignedAtTheirPointsWithNanAndInfAtTheRight) {
  EXPECT_EQ(text(tensor({2, 3}, {1, 2.5, 3, -4, NAN, 6})), "f32(2,3)\n[[ 1.   2.5  3. ]\n [-4.   nan  6. ]]");
  EXPECT_EQ(text(tensor({4}, {INFINITY, -INFINITY, 1.25, -0.5}, DType::f64)),
            "f64(4)\n[  inf  -inf  1.25 -0.5 ]");
  EXPECT_EQ(text(tensor({3}, {0, -0.0, 0.1}, DType::f64)), "f64(3)\n[ 0.  -0.   0.1]");
  EXPECT_EQ(text(tensor({2}, {NAN, NAN})), "f32(2)\n[nan nan]");
  EXPECT_EQ(text(tensor({3}, {1, -20, 300}, DType::i32)), "i32(3)\n[  1 -20 300]");
}

TEST(TensorText, DigitsAreTheFewestThatTellAValueApartUpToThePrecision) {
  const std::vector<double> values = {0.7, 1.0 / 3, 2};
  EXPECT_EQ(text(tensor({3}, values)), "f32(3)\n[0.7    0.3333 2.    ]");
  EXPECT_EQ(text(tensor({3}, values), {.precision = 8}), "f32(3)\n[0.7        0.33333334 2.        ]");
  EXPECT_EQ(text(tensor({3}, values, DType::f64), {.precision = 12}),
            "f64(3)\n[0.7            0.333333333333 2.            ]");
  EXPECT_EQ(text(tensor({3}, values), {.precision = 0}), "f32(3)\n[1. 0. 2.]");
}

TEST(TensorText, SizesFarApartAreScientific) {
  EXPECT_EQ(text(tensor({2}, {1, 123456789}, DType::f64)), "f64(2)\n[1.0000e+00 1.2346e+08]");
  EXPECT_EQ(text(tensor({4}, {1e-5, NAN, -2, INFINITY}, DType::f64)),
            "f64(4)\n[ 1.e-05     nan -2.e+00     inf]");
  EXPECT_EQ(text(tensor({2}, {123456.789, 200000.5}, DType::f64)), "f64(2)\n[123456.789 200000.5  ]");
}

TEST(TensorText, ScalarsAndTensorsWithoutElements) {
  EXPECT_EQ(text(tensor({}, {3.5})), "f32()\n3.5");
  EXPECT_EQ(text(tensor({}, {-7}, DType::i32)), "i32()\n-7");
  EXPECT_EQ(text(tensor({2, 0}, {})), "f32(2,0)\n[]");
  EXPECT_EQ(text(tensor({0}, {})), "f32(0)\n[]");
  EXPECT_EQ(text(Tensor()), "undefined tensor");
}

TEST(TensorText, AxesAreNestedAndLongRowsGoOnInTheNextLine) {
  EXPECT_EQ(text(tensor({2, 2, 3}, range(12, -6), DType::i32)),
            "i32(2,2,3)\n[[[-6 -5 -4]\n  [-3 -2 -1]]\n\n [[ 0  1  2]\n  [ 3  4  5]]]");
  EXPECT_EQ(text(tensor({30}, range(30, 0, 0.125))),
            "f32(30)\n"
            "[0.    0.125 0.25  0.375 0.5   0.625 0.75  0.875 1.    1.125 1.25  1.375\n"
            " 1.5   1.625 1.75  1.875 2.    2.125 2.25  2.375 2.5   2.625 2.75  2.875\n"
            " 3.    3.125 3.25  3.375 3.5   3.625]");
  EXPECT_EQ(text(tensor({2, 4}, range(8)), {.line_width = 12}),
            "f32(2,4)\n[[0. 1. 2.\n  3.]\n [4. 5. 6.\n  7.]]");
}

TEST(TensorText, OfManyElementsOnlyTheEdgesAreShown) {
  EXPECT_EQ(text(tensor({1500}, range(1500), DType::i32)), "i32(1500)\n[   0    1    2 ... 1497 1498 1499]");
  EXPECT_EQ(text(tensor({2, 10, 100}, range(2000, -1000))),
            "f32(2,10,100)\n"
            "[[[-1000.  -999.  -998. ...  -903.  -902.  -901.]\n"
            "  [ -900.  -899.  -898. ...  -803.  -802.  -801.]\n"
            "  [ -800.  -799.  -798. ...  -703.  -702.  -701.]\n"
            "  ...\n"
            "  [ -300.  -299.  -298. ...  -203.  -202.  -201.]\n"
            "  [ -200.  -199.  -198. ...  -103.  -102.  -101.]\n"
            "  [ -100.   -99.   -98. ...    -3.    -2.    -1.]]\n\n"
            " [[    0.     1.     2. ...    97.    98.    99.]\n"
            "  [  100.   101.   102. ...   197.   198.   199.]\n"
            "  [  200.   201.   202. ...   297.   298.   299.]\n"
            "  ...\n"
            "  [  700.   701.   702. ...   797.   798.   799.]\n"
            "  [  800.   801.   802. ...   897.   898.   899.]\n"
            "  [  900.   901.   902. ...   997.   998.   999.]]]");
  EXPECT_EQ(text(tensor({8}, range(8)), {.threshold = 7, .edge_items = 1}), "f32(8)\n[0. ... 7.]");
  EXPECT_EQ(text(tensor({2}, range(2)), {.threshold = 1, .edge_items = 1}), "f32(2)\n[0. 1.]");
}

TEST(TensorText, MessagesStayShortAndAParameterIsNamed) {
  const Parameter weight("query.weight", tensor({1, 2}, {1, 2}), true);
  EXPECT_EQ(fmt::format("{}", weight.value), "query.weight f32(1,2)");
  EXPECT_EQ(text(weight.value), "query.weight f32(1,2)\n[[1. 2.]]");
  EXPECT_EQ(error_of([] { text(tensor({1}, {1}), {.precision = -1}); }),
            "[text] precision -1, edge_items 3 and line_width 75 must not be negative");
}

}  // namespace
}  // namespace bonsai::test
