// Parses a YAML file to a tree with the line and column of each key and value. Scalars are kept as text, so
// 0100 is never octal and `no` is never false. Only maps, lists and scalars are accepted. Anchors, aliases,
// tags, merge keys, a second document and quotes over several lines are errors.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bonsai/framework/core/error.h"
#include "bonsai/framework/core/quote.h"

namespace bonsai {

// An error in the command line, a config or a file that the user named.
class ConfigError : public Error {
 public:
  using Error::Error;
};

struct Place {
  std::string name;          // name of the file, or the option
  int line = 0, column = 0;  // from 1, columns in characters; 0 for an option
  std::string text() const;  // "mine.yaml:7:5"
};

struct Node {
  enum class Kind { empty, scalar, map, list };
  Kind kind = Kind::empty;
  std::string text;  // the text of a scalar
  Place place;
  std::string key;  // key of this node in its map or list
  Place key_place;
  std::vector<Node> entries;  // entries of a map, or of a list with the keys 0, 1, ...
};

struct Problem {
  Place place;
  std::string text;
};

struct Document {
  std::string name;
  Node root;                      // a map with entries
  std::vector<Problem> problems;  // errors that did not prevent parsing the rest of the file
};

constexpr size_t kMaxConfigBytes = 64 << 10;

// Parses UTF-8 with or without BOM; lines end in \n, \r\n or \r. Throws ConfigError if the text is longer
// than kMaxConfigBytes, is not YAML or has no keys.
Document parse_document(std::string text, const std::string& name);

// Throws one ConfigError with a line per problem, in the order of the file.
[[noreturn]] void throw_problems(const std::string& name, std::vector<Problem> problems);

const Node* find_entry(const Node& map, std::string_view key);  // null if there is none

// "model.n_heads"; the root's path is "".
std::string join_path(const std::string& section, std::string_view key);

}  // namespace bonsai
