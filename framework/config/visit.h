// Configs are plain structs that list their keys once, in visit():
//
//   template <class V> void visit(V& v) {
//     v("d_model", d_model, "width of the residual stream", at_least(1));
//   }
//
// Every use of a config is a visitor over that list. Here: checking values. A default stands in one
// place, the struct; a range in one place, the list.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bonsai {

// The values a number may have.
struct Range {
  double least, most;
  std::string text() const;  // "at least 1", "from 0 to 1"
};
Range at_least(double least);
Range between(double least, double most);

// The words a string may be.
struct OneOf {
  std::vector<std::string> words;
};

// Collects what is out of range: "n_heads is 0; it must be at least 1".
class RangeVisitor {
 public:
  void operator()(const char* key, int64_t& value, const char* help, const Range& range);
  void operator()(const char* key, double& value, const char* help, const Range& range);
  void operator()(const char* key, std::string& value, const char* help, const OneOf& words);
  void operator()(const char*, bool&, const char*) {}

  const std::vector<std::string>& errors() const { return errors_; }

 private:
  std::vector<std::string> errors_;
};

// Throws one Error that lists them all.
void throw_errors(const std::string& where, const std::vector<std::string>& errors);

template <class Config>
void check_config(const std::string& where, Config config) {
  RangeVisitor visitor;
  config.visit(visitor);
  throw_errors(where, visitor.errors());
}

}  // namespace bonsai
