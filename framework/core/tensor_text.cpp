#include "bonsai/framework/core/tensor_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace bonsai {
namespace {

// The shortest text that reads back as the same value of this type, but with at most `precision` digits after
// the point and no trailing zeros: "1.", "-0.25", "1.5e-05".
std::string shortest(double value, DType dtype, std::chars_format format, int precision) {
  char buffer[400];
  const auto write = [&](auto v) { return std::to_chars(buffer, std::end(buffer), v, format).ptr; };
  std::string s(buffer, dtype == DType::f32 ? write(static_cast<float>(value)) : write(value));
  const auto point = [&] { return std::min(s.find('.'), s.size()); };
  const auto end = [&] { return std::min(s.find('e'), s.size()); };
  if (point() < end() && end() - point() - 1 > static_cast<size_t>(precision))
    s.assign(buffer, std::to_chars(buffer, std::end(buffer), value, format, precision).ptr);
  if (point() == s.size()) s.insert(end(), 1, '.');
  while (s[end() - 1] == '0') s.erase(end() - 1, 1);
  return s;
}

class Words {
 public:
  Words(const std::vector<double>& values, DType dtype, const TextOptions& o) {
    double most = 0, least = INFINITY;
    for (const double v : values)
      if (std::isfinite(v) && v != 0)
        most = std::max(most, std::abs(v)), least = std::min(least, std::abs(v));
    const bool scientific = most > 0 && (most >= 1e8 || least < 1e-4 || most / least > 1000);
    for (const double v : values) words.push_back(word(v, dtype, scientific, o.precision));
    align(dtype != DType::i32, scientific);
  }
  std::vector<std::string> words;

 private:
  static std::string word(double v, DType dtype, bool scientific, int precision) {
    if (dtype == DType::i32) return fmt::format("{:.0f}", v);
    if (std::isnan(v)) return "nan";
    if (std::isinf(v)) return v > 0 ? "inf" : "-inf";
    return shortest(v, dtype, scientific ? std::chars_format::scientific : std::chars_format::fixed,
                    precision);
  }

  // Aligns decimal points; words without a point are right-aligned.
  void align(bool floating, bool scientific) {
    const auto fraction = [](const std::string& w) {  // digits after the point
      const size_t point = w.find('.');
      return point == w.npos ? 0 : std::min(w.find('e'), w.size()) - point - 1;
    };
    size_t digits = 0, width = 0;
    for (const std::string& w : words) digits = std::max(digits, fraction(w));
    for (std::string& w : words) {
      if (floating && w.find('.') != w.npos)
        w.insert(std::min(w.find('e'), w.size()), digits - fraction(w), scientific ? '0' : ' ');
      width = std::max(width, w.size());
    }
    for (std::string& w : words) w.insert(0, width - w.size(), ' ');
  }
};

constexpr int64_t kDots = -1;

class Layout {
 public:
  Layout(const Tensor& x, const TextOptions& o) : x_(x), o_(o), edges_(x.elements() > o.threshold) {
    gather(0, 0);
    words_ = Words(shown_, x.dtype(), o).words;
  }

  std::string print() { return x_.elements() == 0 ? "[]" : nested(0, o_.line_width); }

 private:
  // The indices of an axis that are shown.
  std::vector<int64_t> indices(int axis) const {
    std::vector<int64_t> all;
    const int64_t n = x_.size(axis);
    for (int64_t i = 0; i < n; ++i) {
      const bool hidden = edges_ && n > 2 * o_.edge_items && i >= o_.edge_items && i < n - o_.edge_items;
      if (!hidden) all.push_back(i);
      if (hidden && i == o_.edge_items) all.push_back(kDots), i = n - o_.edge_items - 1;
    }
    return all;
  }

  void gather(int axis, int64_t offset) {
    if (axis == x_.rank() && x_.elements() > 0) shown_.push_back(x_.alias({}, offset).item());
    if (axis == x_.rank()) return;
    for (const int64_t i : indices(axis))
      if (i != kDots) gather(axis + 1, offset * x_.size(axis) + i);
  }

  std::string nested(int axis, int64_t width) {
    if (axis == x_.rank()) return words_[next_++];
    const std::string indent(static_cast<size_t>(axis) + 1, ' ');
    const bool last = axis + 1 == x_.rank();
    const auto newlines = static_cast<size_t>(last ? 1 : x_.rank() - axis - 1);
    std::string all = "[", line = indent;  // the indent has the width of the opening brackets
    bool first = true;
    for (const int64_t i : indices(axis)) {
      const std::string item = i == kDots ? "..." : nested(axis + 1, width - 1);
      const bool full = last && static_cast<int64_t>(line.size() + item.size()) + !first > width - 1;
      if (full) line = indent;
      if (!first && (full || !last)) all.append(newlines, '\n').append(indent);
      if (!first && last && !full) all += ' ', line += ' ';
      all += item, line += item, first = false;
    }
    return all + "]";
  }

  const Tensor& x_;
  TextOptions o_;
  bool edges_;
  std::vector<double> shown_;
  std::vector<std::string> words_;
  size_t next_ = 0;
};

}  // namespace

std::string text(const Tensor& x, const TextOptions& options) {
  check(options.precision >= 0 && options.edge_items >= 0 && options.line_width >= 0, "text",
        "precision {}, edge_items {} and line_width {} must not be negative", options.precision,
        options.edge_items, options.line_width);
  return x ? x.describe() + "\n" + Layout(x, options).print() : x.describe();
}

}  // namespace bonsai
