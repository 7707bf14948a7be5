// A YAML file as a tree that knows where each key and value stands. yaml-cpp parses; every scalar stays
// the text it was, so 0100 is never octal and `no` never false. Of YAML a config takes maps and scalars:
// anchors, aliases, tags, merge keys, a second document and quotes over several lines are refused.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bonsai/framework/core/error.h"
#include "bonsai/framework/core/quote.h"

namespace bonsai {

// What the user wrote is wrong: the command line or a config, not the run.
class ConfigError : public Error {
 public:
  using Error::Error;
};

struct Place {
  std::string name;          // of the file, or the option
  int line = 0, column = 0;  // from 1, columns in characters; 0 where there is none
  std::string text() const;  // "mine.yaml:7:5"
};

struct Node {
  enum class Kind { empty, scalar, map, list };
  Kind kind = Kind::empty;
  std::string text;  // of a scalar
  Place place;
  std::string key;  // of this node in its map
  Place key_place;
  std::vector<Node> entries;  // of a map; of a list, under the keys 0, 1, ...
};

struct Problem {
  Place place;
  std::string text;
};

struct Document {
  std::string name;
  Node root;                      // a map with entries
  std::vector<Problem> problems;  // found so far; the file could be read in spite of them
};

constexpr size_t kMaxConfigBytes = 64 << 10;

// Parses UTF-8 with or without BOM, lines ending in \n, \r\n or \r. ConfigError if that is too long, is not
// YAML or holds no keys.
Document parse_document(std::string text, const std::string& name);

// One ConfigError of them all, a line each, in the order of the file.
[[noreturn]] void throw_problems(const std::string& name, std::vector<Problem> problems);

const Node* find_entry(const Node& map, std::string_view key);  // null if there is none

// "model.n_heads"; the root's path is "".
std::string join_path(const std::string& section, std::string_view key);

}  // namespace bonsai
