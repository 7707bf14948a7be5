// Einsum of two operands as one matrix product: the operands are permuted to (batch, rows, inner) and (batch,
// inner, columns).
#include <algorithm>

#include "bonsai/framework/ops/broadcast.h"
#include "bonsai/framework/ops/ops.h"

namespace bonsai {
namespace {

constexpr const char* kOp = "einsum";

bool has(const std::string& letters, char c) { return letters.find(c) != std::string::npos; }

// A tensor and the letter of each of its axes.
struct Labelled {
  std::string letters;
  Tensor x;

  int64_t size(char c) const { return x.size(static_cast<int>(letters.find(c))); }

  // Sums over the axes whose letters are not in `wanted`.
  void sum_others(const std::string& wanted) {
    for (int axis = x.rank() - 1; axis >= 0; --axis) {
      if (has(wanted, letters[static_cast<size_t>(axis)])) continue;
      x = sum(x, axis);
      letters.erase(static_cast<size_t>(axis), 1);
    }
  }

  Tensor in_order(const std::string& order) const {
    if (order == letters) return x;
    std::vector<int> axes;
    for (const char c : order) axes.push_back(static_cast<int>(letters.find(c)));
    return permute(x, axes);
  }
};

void check_letters(const std::string& equation, const std::string& letters) {
  for (const char c : letters) {
    check((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'), kOp,
          "\"{}\" must be two operands and a result, a letter for each axis, as in \"ij,jk->ik\"", equation);
    check(std::count(letters.begin(), letters.end(), c) == 1, kOp,
          "the letter {} is twice in \"{}\" of \"{}\"; name each axis once", c, letters, equation);
  }
}

Labelled labelled(const std::string& equation, const std::string& letters, const Tensor& x) {
  check_letters(equation, letters);
  check(static_cast<int>(letters.size()) == x.rank(), kOp,
        "\"{}\" of \"{}\" names {} axes, but the operand is {}", letters, equation, letters.size(), x);
  return {letters, x};
}

}  // namespace

Tensor einsum(const std::string& equation, const Tensor& first, const Tensor& second) {
  check_alike(kOp, first, second);
  std::string text = equation;
  std::erase(text, ' ');
  const size_t arrow = text.find("->"), comma = std::min(text.find(','), text.size());
  check(arrow != std::string::npos && comma < arrow, kOp,
        "\"{}\" must be two operands and a result, a letter for each axis, as in \"ij,jk->ik\"", equation);
  const std::string result = text.substr(arrow + 2);
  Labelled a = labelled(equation, text.substr(0, comma), first),
           b = labelled(equation, text.substr(comma + 1, arrow - comma - 1), second);
  check_letters(equation, result);
  for (const char c : result)
    check(has(a.letters, c) || has(b.letters, c), kOp,
          "the letter {} of the result is in no operand of \"{}\"", c, equation);
  for (const char c : a.letters)
    check(!has(b.letters, c) || a.size(c) == b.size(c), kOp, "sizes of {} differ: {} and {} in \"{}\"", c,
          first, second, equation);

  const std::string in_both = a.letters;  // before sums take letters away
  a.sum_others(b.letters + result);
  b.sum_others(in_both + result);
  std::string batch, rows, inner, columns;
  int64_t batches = 1, m = 1, k = 1, n = 1;
  for (const char c : a.letters) {
    const bool shared = has(b.letters, c), kept = has(result, c);
    (shared && kept ? batch : shared ? inner : rows) += c;
    (shared && kept ? batches : shared ? k : m) *= a.size(c);
  }
  for (const char c : b.letters)
    if (!has(a.letters, c)) columns += c, n *= b.size(c);
  Shape sizes;
  check(result.size() <= kMaxRank, kOp, "the result of \"{}\" has more than {} axes", equation, kMaxRank);
  for (const char c : batch + rows + columns)
    sizes.dim[sizes.rank++] = has(a.letters, c) ? a.size(c) : b.size(c);
  const Tensor y = matmul(reshape(a.in_order(batch + rows + inner), {batches, m, k}),
                          reshape(b.in_order(batch + inner + columns), {batches, k, n}));
  return Labelled{batch + rows + columns, reshape(y, sizes)}.in_order(result);
}

}  // namespace bonsai
