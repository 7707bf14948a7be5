#include "bonsai/framework/config/visit.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "bonsai/framework/core/error.h"
#include "bonsai/framework/core/quote.h"

namespace bonsai {

std::string Range::text() const {
  return most == std::numeric_limits<double>::infinity() ? fmt::format("at least {}", least)
                                                         : fmt::format("from {} to {}", least, most);
}

Range at_least(double least) { return {least, std::numeric_limits<double>::infinity()}; }
Range between(double least, double most) { return {least, most}; }

std::string OneOf::text() const { return fmt::format("one of {}", fmt::join(words, ", ")); }

bool OneOf::holds(const std::string& word) const {
  return std::find(words.begin(), words.end(), word) != words.end();
}

void RangeVisitor::operator()(const char* key, int64_t& value, const char*, const Range& range) {
  if (!range.holds(static_cast<double>(value)))
    errors_.push_back(fmt::format("{}{} is {}; it must be {}", prefix_, key, value, range.text()));
}

void RangeVisitor::operator()(const char* key, double& value, const char*, const Range& range) {
  if (!range.holds(value))
    errors_.push_back(fmt::format("{}{} is {}; it must be {}", prefix_, key, value, range.text()));
}

void RangeVisitor::operator()(const char* key, std::string& value, const char*, const OneOf& words) {
  if (!words.holds(value))
    errors_.push_back(fmt::format("{}{} is '{}'; it must be {}", prefix_, key, escaped(value), words.text()));
}

void RangeVisitor::enter(const char* key, const char*, const std::function<void(Visitor&)>& visit_section) {
  const std::string outer = prefix_;
  prefix_ += std::string(key) + ".";
  visit_section(*this);
  prefix_ = outer;
}

void RangeVisitor::repeat(const char* key, const char* help, size_t count,
                          const std::function<void(Visitor&, size_t)>& visit_item,
                          const std::function<void(Visitor&)>&) {
  for (size_t i = 0; i < count; ++i)
    enter(fmt::format("{}.{}", key, i).c_str(), help, [&](Visitor& v) { visit_item(v, i); });
}

void RangeVisitor::choose(const char* key, std::string& name, const char* help, const OneOf& words,
                          const std::function<void(Visitor&)>& visit_keys) {
  (*this)(key, name, help, words);
  if (words.holds(name)) enter(key, help, visit_keys);
}

void throw_errors(const std::string& where, const std::vector<std::string>& errors) {
  if (!errors.empty()) fail(where, fmt::format("{}", fmt::join(errors, "; ")));
}

}  // namespace bonsai
