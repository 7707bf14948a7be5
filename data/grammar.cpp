#include "bonsai/data/grammar.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "bonsai/framework/core/error.h"

namespace bonsai {
namespace {

constexpr const char* kWhere = "grammar";

}  // namespace

void Grammar::define(const std::string& name, const std::vector<Alternative>& alternatives) {
  check(!names_.contains(name), kWhere, "{{{}}} is defined twice", name);
  Symbol symbol;
  uint64_t total = 0;
  for (const Alternative& a : alternatives) {
    check(a.weight > 0, kWhere, "{{{}}}: the alternative \"{}\" has weight 0", name, a.text);
    symbol.rules.push_back({total += a.weight, std::log(static_cast<double>(a.weight)), pieces_of(a.text)});
  }
  check(total > 0, kWhere, "{{{}}} has no alternatives", name);
  for (Rule& rule : symbol.rules) rule.log_probability -= std::log(static_cast<double>(total));
  tally(symbol);
  names_[name] = static_cast<int>(symbols_.size());
  symbols_.push_back(std::move(symbol));
}

std::vector<Grammar::Piece> Grammar::pieces_of(const std::string& text) const {
  std::vector<Piece> pieces;
  for (size_t at = 0; at < text.size();) {
    const size_t open = std::min(text.find('{', at), text.size());
    if (open > at) pieces.push_back({text.substr(at, open - at)});
    if (open == text.size()) break;
    const size_t close = text.find('}', open);
    check(close != std::string::npos, kWhere, "a brace is not closed in \"{}\"", text);
    const auto found = names_.find(text.substr(open + 1, close - open - 1));
    check(found != names_.end(), kWhere, "\"{}\" uses a symbol that is not defined before it", text);
    pieces.push_back({"", found->second});
    at = close + 1;
  }
  return pieces;
}

void Grammar::tally(Symbol& symbol) const {
  for (const Rule& rule : symbol.rules) {
    double entropy = -rule.log_probability, length = 0, count = 1;
    for (const Piece& piece : rule.pieces) {
      if (piece.symbol < 0) {
        length += static_cast<double>(piece.text.size());
        continue;
      }
      const Symbol& part = symbols_[static_cast<size_t>(piece.symbol)];
      entropy += part.entropy;
      length += part.mean_length;
      count *= part.count;
    }
    const double probability = std::exp(rule.log_probability);
    symbol.entropy += probability * entropy;
    symbol.mean_length += probability * length;
    symbol.count += count;
  }
}

const Grammar::Symbol& Grammar::start() const {
  check(!symbols_.empty(), kWhere, "has no symbols");
  return symbols_.back();
}

double Grammar::entropy() const { return start().entropy; }
double Grammar::mean_length() const { return start().mean_length; }
double Grammar::count() const { return start().count; }

Grammar::Sample Grammar::sample(RandomKey key) const {
  Sample made{"", 0};
  uint64_t draws = 0;
  expand(start(), key, draws, made);
  return made;
}

void Grammar::expand(const Symbol& symbol, RandomKey key, uint64_t& draws, Sample& to) const {
  const double point = random_uniform(key, draws++) * static_cast<double>(symbol.rules.back().up_to);
  const Rule& rule = *std::find_if(symbol.rules.begin(), symbol.rules.end(),
                                   [&](const Rule& r) { return point < static_cast<double>(r.up_to); });
  to.log_probability += rule.log_probability;
  for (const Piece& piece : rule.pieces) {
    if (piece.symbol < 0)
      to.text += piece.text;
    else
      expand(symbols_[static_cast<size_t>(piece.symbol)], key, draws, to);
  }
}

// A breadth-first parser: after each piece of an alternative it has all positions in the text that it can be
// at.
class Grammar::Reader {
 public:
  struct State {
    size_t at;
    double log_probability;
  };
  using States = std::vector<State>;

  // `open`: the text may end anywhere; probabilities are summed over all continuations.
  Reader(const Grammar& grammar, std::string_view text, bool open)
      : grammar_(grammar), text_(text), open_(open) {}

  size_t reached() const { return reached_; }
  bool at_end(const State& state) const { return state.at == text_.size(); }

  void follow(const Symbol& symbol, State from, States& to) {
    for (const Rule& rule : symbol.rules) {
      States states{{from.at, from.log_probability + rule.log_probability}};
      for (const Piece& piece : rule.pieces) states = after(piece, states);
      to.insert(to.end(), states.begin(), states.end());
    }
  }

  // Starts at every character that the symbol generates, so a derivation of n characters counts n times.
  const States& follow_from_inside(const Symbol& symbol) {
    const auto [entry, is_new] = inside_.try_emplace(&symbol);
    if (!is_new) return entry->second;
    for (const Rule& rule : symbol.rules) {
      States states;
      for (const Piece& piece : rule.pieces) {
        states = after(piece, states);
        if (piece.symbol >= 0)
          for (const State& state : follow_from_inside(symbol_of(piece)))
            states.push_back({state.at, state.log_probability + rule.log_probability});
        for (size_t skip = 0; skip < piece.text.size(); ++skip)
          match(std::string_view(piece.text).substr(skip), {0, rule.log_probability}, states);
      }
      entry->second.insert(entry->second.end(), states.begin(), states.end());
    }
    return entry->second;
  }

 private:
  const Symbol& symbol_of(const Piece& piece) const {
    return grammar_.symbols_[static_cast<size_t>(piece.symbol)];
  }

  States after(const Piece& piece, const States& states) {
    States next;
    for (const State& state : states) {
      if (open_ && at_end(state))
        next.push_back(state);
      else if (piece.symbol >= 0)
        follow(symbol_of(piece), state, next);
      else
        match(piece.text, state, next);
    }
    return next;
  }

  void match(std::string_view made, State state, States& to) {
    const std::string_view rest = text_.substr(state.at);
    if (open_) made = made.substr(0, rest.size());
    if (!rest.starts_with(made)) return;
    to.push_back({state.at + made.size(), state.log_probability});
    reached_ = std::max(reached_, to.back().at);
  }

  const Grammar& grammar_;
  std::string_view text_;
  bool open_;
  size_t reached_ = 0;
  std::map<const Symbol*, States> inside_;
};

std::vector<double> Grammar::derivations(std::string_view text, size_t* reached) const {
  Reader reader(*this, text, /*open=*/false);
  Reader::States ends;
  reader.follow(start(), {0, 0}, ends);
  if (reached) *reached = reader.reached();
  std::vector<double> whole;
  for (const auto& end : ends)
    if (reader.at_end(end)) whole.push_back(end.log_probability);
  return whole;
}

double Grammar::window_log_probability(std::string_view window) const {
  check(derivations("").empty(), kWhere, "generates an empty text, so windows have no probability");
  Reader reader(*this, window, /*open=*/true);
  Reader::States states = reader.follow_from_inside(start()), next;
  double largest = -INFINITY;
  std::vector<double> ended;
  for (; !states.empty(); states = std::exchange(next, {})) {
    for (const auto& state : states) {
      if (!reader.at_end(state)) {
        reader.follow(start(), state, next);
        continue;
      }
      ended.push_back(state.log_probability);
      largest = std::max(largest, state.log_probability);
    }
  }
  double sum = 0;
  for (const double log_probability : ended) sum += std::exp(log_probability - largest);
  return ended.empty() ? -INFINITY : largest + std::log(sum / mean_length());
}

std::vector<std::string> Grammar::words() const {
  std::set<std::string> all;
  for (const Symbol& symbol : symbols_) {
    for (const Rule& rule : symbol.rules) {
      for (const Piece& piece : rule.pieces) {
        std::string word;
        for (const char c : piece.text + " ") {
          if (c >= 'a' && c <= 'z') {
            word += c;
          } else if (!word.empty()) {
            all.insert(std::exchange(word, ""));
          }
        }
      }
    }
  }
  return {all.begin(), all.end()};
}

}  // namespace bonsai
