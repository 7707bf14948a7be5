#include "framework/config/visit.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "framework/core/error.h"

namespace bonsai {

std::string Range::text() const {
  return most == std::numeric_limits<double>::infinity() ? fmt::format("at least {}", least)
                                                         : fmt::format("from {} to {}", least, most);
}

Range at_least(double least) { return {least, std::numeric_limits<double>::infinity()}; }
Range between(double least, double most) { return {least, most}; }

void RangeVisitor::operator()(const char* key, int64_t& value, const char*, const Range& range) {
  const double v = static_cast<double>(value);
  if (!(v >= range.least && v <= range.most))
    errors_.push_back(fmt::format("{} is {}; it must be {}", key, value, range.text()));
}

void RangeVisitor::operator()(const char* key, double& value, const char*, const Range& range) {
  if (!(value >= range.least && value <= range.most))  // also refuses NaN
    errors_.push_back(fmt::format("{} is {}; it must be {}", key, value, range.text()));
}

void RangeVisitor::operator()(const char* key, std::string& value, const char*, const OneOf& allowed) {
  if (std::find(allowed.words.begin(), allowed.words.end(), value) == allowed.words.end())
    errors_.push_back(
        fmt::format("{} is '{}'; it must be one of {}", key, value, fmt::join(allowed.words, ", ")));
}

void throw_errors(const std::string& where, const std::vector<std::string>& errors) {
  if (!errors.empty()) fail(where, fmt::format("{}", fmt::join(errors, "; ")));
}

}  // namespace bonsai
