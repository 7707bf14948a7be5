// Probabilistic grammars that are small enough to compute the properties of their texts exactly: the
// probability of each text, the entropy, the mean length.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "bonsai/framework/core/rng.h"

namespace bonsai {

// A context-free grammar without recursion. A symbol has weighted alternatives: ASCII texts in which {name}
// stands for a symbol defined earlier. The last symbol defined is the start symbol.
class Grammar {
 public:
  struct Alternative {
    std::string text;
    uint32_t weight = 1;
  };
  // Throws if the symbol is defined already, or if an alternative names one that is not.
  void define(const std::string& symbol, const std::vector<Alternative>& alternatives);

  struct Sample {
    std::string text;
    double log_probability;
  };
  Sample sample(RandomKey key) const;  // draw i uses element i of the key

  // The log probability of each derivation of the text: none if the grammar does not generate it, several if
  // it is ambiguous. `reached`, if given, is set to the number of characters that the grammar can generate.
  std::vector<double> derivations(std::string_view text, size_t* reached = nullptr) const;
  // The log probability that an endless sequence of texts, from a uniformly chosen position on, begins with
  // `window`: the best that a predictor can do without seeing what precedes the window. -inf if the window
  // cannot occur. Throws if the grammar generates an empty text.
  double window_log_probability(std::string_view window) const;

  double entropy() const;      // of derivations, in nats; also of texts, if no text has two derivations
  double mean_length() const;  // characters
  double count() const;        // number of derivations
  // The words of all texts, sorted. Any character but a lower-case letter separates words.
  std::vector<std::string> words() const;

 private:
  struct Piece {
    std::string text;
    int symbol = -1;  // if not -1, this symbol instead of the text
  };
  struct Rule {
    uint64_t up_to;  // cumulative weight, its own included
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
