// Probabilistic grammars small enough that everything about the texts they make is known exactly: the
// probability of each, the entropy, the mean length.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "bonsai/framework/core/rng.h"

namespace bonsai {

// A context-free grammar without recursion. A symbol is defined by weighted alternatives, texts of ASCII in
// which {name} stands for a symbol defined before; the last symbol defined is the one that texts are made
// from.
class Grammar {
 public:
  struct Alternative {
    std::string text;
    uint32_t weight = 1;
  };
  void define(const std::string& symbol, const std::vector<Alternative>& alternatives);

  struct Sample {
    std::string text;
    double log_probability;
  };
  Sample sample(RandomKey key) const;  // draw i is element i of the key

  // The log probability of each derivation of the text: none where the grammar cannot make it, several where
  // it is ambiguous. `reached`, if given, is how far the text could be followed, in characters.
  std::vector<double> derivations(std::string_view text, size_t* reached = nullptr) const;
  // The log probability that an endless run of texts, cut at a uniform place, goes on like this: the best a
  // predictor can do that sees the window and nothing before it. -inf where no run holds it. An Error if
  // there is an empty text.
  double window_log_probability(std::string_view window) const;

  double entropy() const;      // of a derivation, in nats; of a text, if no text has two derivations
  double mean_length() const;  // characters
  double count() const;        // derivations there are
  std::vector<std::string> words()
      const;  // of all texts, sorted; what is not a lower-case letter separates words

 private:
  struct Piece {
    std::string text;
    int symbol = -1;  // this one instead of the text
  };
  struct Rule {
    uint64_t up_to;  // its weight and those before
    double log_probability;
    std::vector<Piece> pieces;
  };
  struct Symbol {
    std::vector<Rule> rules;
    double entropy = 0, mean_length = 0, count = 0;
  };
  class Reader;

  std::vector<Piece> pieces_of(const std::string& text) const;
  void tally(Symbol& symbol) const;
  const Symbol& start() const;
  void expand(const Symbol& symbol, RandomKey key, uint64_t& draws, Sample& to) const;

  std::map<std::string, int> names_;
  std::vector<Symbol> symbols_;
};

}  // namespace bonsai
