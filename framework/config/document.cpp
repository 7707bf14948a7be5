#include "bonsai/framework/config/document.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <tuple>

namespace bonsai {
namespace {

std::string line_of(const Problem& problem) {
  constexpr size_t kMax = 600;  // bytes; the text may quote long input
  return escaped(fmt::format("{}: {}", problem.place.text(), problem.text), kMax);
}

[[noreturn]] void refuse(const Place& place, const std::string& text) {
  throw ConfigError(line_of({place, text}));
}

// The parsed text, with the line and column of each position. yaml-cpp counts columns in bytes.
class Source {
 public:
  Source(std::string text, std::string name) : text_(std::move(text)), name_(std::move(name)) {}

  Place place(size_t position) const {
    position = std::min(position, text_.size());
    const auto start = text_.begin(), here = start + static_cast<ptrdiff_t>(position);
    const size_t newline = position == 0 ? std::string::npos : text_.rfind('\n', position - 1);
    const auto line = start + static_cast<ptrdiff_t>(newline + 1);
    const auto characters = std::count_if(line, here, [](char c) { return (c & 0xC0) != 0x80; });
    return {name_, static_cast<int>(std::count(start, here, '\n')) + 1, static_cast<int>(characters) + 1};
  }

  // Whether the quote at `position` is closed on the same line. yaml-cpp also accepts the end of the file, so
  // a missing quote would hide all keys after it.
  bool closes(size_t position) const {
    const char quote = text_[position];
    for (size_t i = position + 1; i < text_.size() && text_[i] != '\n'; ++i) {
      if (quote == '"' && text_[i] == '\\') {
        if (++i < text_.size() && text_[i] == '\n') return false;
      } else if (text_[i] == quote) {
        if (quote == '"' || i + 1 >= text_.size() || text_[i + 1] != quote) return true;
        ++i;
      }
    }
    return false;
  }

  // The position of the first tab in the indentation of the line, if there is one.
  std::optional<size_t> indenting_tab(size_t position) const {
    const size_t newline = position == 0 ? std::string::npos : text_.rfind('\n', position - 1);
    const size_t start = newline + 1, words = text_.find_first_not_of(" \t", start);
    const size_t tab = text_.find('\t', start);
    return tab < words ? std::optional(tab) : std::nullopt;
  }

  char at(size_t position) const { return position < text_.size() ? text_[position] : '\0'; }
  const std::string& text() const { return text_; }

 private:
  std::string text_, name_;
};

class TreeBuilder final : public YAML::EventHandler {
 public:
  TreeBuilder(const Source& source, Document& document) : source_(source), document_(document) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++ > 0)
      refuse(place(mark), "a second document starts here, after `---` or less indented; a config is one");
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(node(Node::Kind::empty, mark, "", anchor));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    refuse(place(mark), "an alias (*); a config takes none: write the value here");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    const char first = source_.at(position(mark));
    if ((first == '"' || first == '\'') && !source_.closes(position(mark)))
      refuse(place(mark), "this quote is not closed on its line");
    Node scalar = node(Node::Kind::scalar, mark, tag, anchor);
    scalar.text = value;
    add(std::move(scalar));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open_.push_back({node(Node::Kind::list, mark, tag, anchor), {}});
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open_.push_back({node(Node::Kind::map, mark, tag, anchor), {}});
  }
  void OnSequenceEnd() override { close(); }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    Node node;
    std::optional<Node> key;  // the key whose value comes next
  };

  static size_t position(const YAML::Mark& mark) { return static_cast<size_t>(std::max(mark.pos, 0)); }
  Place place(const YAML::Mark& mark) const { return source_.place(position(mark)); }

  // yaml-cpp gives the tag "?" to plain scalars and "!" to quoted ones.
  Node node(Node::Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) const {
    Node result;
    result.kind = kind;
    result.place = place(mark);
    if (anchor != 0)
      refuse(result.place, "an anchor (&); a config takes none: write the value where it is used");
    if (tag.size() > 1) refuse(result.place, "a tag (!); a config takes none: write the plain value");
    return result;
  }

  void close() {
    Node closed = std::move(open_.back().node);
    open_.pop_back();
    add(std::move(closed));
  }

  void add(Node node) {
    if (open_.empty()) {
      document_.root = std::move(node);
    } else if (Open& top = open_.back(); top.node.kind == Node::Kind::list) {
      node.key = std::to_string(top.node.entries.size());
      node.key_place = node.place;
      top.node.entries.push_back(std::move(node));
    } else if (!top.key) {
      if (node.kind != Node::Kind::scalar) refuse(node.place, "a key must be a plain word");
      top.key = std::move(node);
    } else {
      add_entry(top, std::move(node));
      top.key.reset();
    }
  }

  void add_entry(Open& map, Node node) {
    node.key = map.key->text;
    node.key_place = map.key->place;
    if (node.kind == Node::Kind::empty) node.place = node.key_place;  // yaml-cpp gives the next word's
    if (node.key == "<<") {
      document_.problems.push_back(
          {node.key_place, "a merge key (<<); a config takes none: write the keys out"});
    } else if (const Node* first = find_entry(map.node, node.key)) {
      std::string path;
      for (const Open& open : open_) path = join_path(path, open.key ? open.key->text : "");
      document_.problems.push_back({node.key_place, fmt::format("{} is given twice, on lines {} and {}", path,
                                                                first->key_place.line, node.key_place.line)});
    } else {
      map.node.entries.push_back(std::move(node));
    }
  }

  const Source& source_;
  Document& document_;
  std::vector<Open> open_;
  int documents_ = 0;
};

void normalise_lines(std::string& text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  size_t to = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    text[to++] = text[i] == '\r' ? '\n' : text[i];
  }
  text.resize(to);
}

[[noreturn]] void refuse_syntax(const Source& source, const YAML::Exception& error) {
  const auto position = static_cast<size_t>(std::max(error.mark.pos, 0));
  if (const auto tab = source.indenting_tab(position))
    refuse(source.place(*tab), "a tab in the indentation; YAML takes only spaces");
  const char* hint =
      error.msg == "illegal map value"
          ? ": here or on the line above, is the indentation right and a space after each colon?"
          : "";
  refuse(source.place(position), "not YAML: " + error.msg + hint);
}

}  // namespace

std::string Place::text() const { return line > 0 ? fmt::format("{}:{}:{}", name, line, column) : name; }

Document parse_document(std::string text, const std::string& name) {
  const auto unreadable = [&](const std::string& why) {
    throw ConfigError(fmt::format("{}: {}; a config is a short text of keys and values", name, why));
  };
  if (text.size() > kMaxConfigBytes) unreadable(fmt::format("longer than {} KiB", kMaxConfigBytes >> 10));
  normalise_lines(text);
  if (const size_t bad = find_bad_byte(text); bad != std::string::npos)
    unreadable(fmt::format("byte 0x{:02x} on line {} is not UTF-8 text",
                           static_cast<unsigned char>(text[bad]),
                           1 + std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(bad), '\n')));

  Document document{name, {}, {}};
  const Source source(std::move(text), name);
  TreeBuilder builder(source, document);
  try {
    std::istringstream stream(source.text());
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    refuse_syntax(source, error);
  }
  const Node& root = document.root;
  if (root.kind == Node::Kind::scalar || root.kind == Node::Kind::list)
    unreadable(root.kind == Node::Kind::list ? "holds a list" : "holds no `key: value`");
  if (root.entries.empty() && document.problems.empty()) unreadable("empty, or only comments");
  return document;
}

void throw_problems(const std::string& name, std::vector<Problem> problems) {
  // Settings, which have no line, come last.
  std::stable_sort(problems.begin(), problems.end(), [](const Problem& a, const Problem& b) {
    return std::tuple(a.place.line == 0, a.place.line, a.place.column) <
           std::tuple(b.place.line == 0, b.place.line, b.place.column);
  });
  std::string text = problems.size() > 1 ? fmt::format("{}: {} errors", name, problems.size()) : "";
  constexpr size_t kMax = 20;  // problems that are printed
  const std::string more = problems.size() > kMax ? fmt::format("\nand {} more", problems.size() - kMax) : "";
  if (!more.empty()) problems.resize(kMax);
  for (const Problem& problem : problems)
    text += fmt::format("{}{}", text.empty() ? "" : "\n", line_of(problem));
  throw ConfigError(text + more);
}

const Node* find_entry(const Node& map, std::string_view key) {
  const auto found =
      std::find_if(map.entries.begin(), map.entries.end(), [&](const Node& n) { return n.key == key; });
  return found == map.entries.end() ? nullptr : &*found;
}

std::string join_path(const std::string& section, std::string_view key) {
  return section.empty() ? std::string(key) : fmt::format("{}.{}", section, key);
}

}  // namespace bonsai
