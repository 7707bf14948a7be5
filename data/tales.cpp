#include "bonsai/data/tales.h"

#include <cmath>
#include <iterator>
#include <sstream>
#include <vector>

#include "bonsai/framework/core/error.h"

namespace bonsai {
namespace {

// No word that follows "a" begins with a vowel. Words are short, so that there are many choices and little
// spelling.
constexpr const char* kAdjectives =
    "big cold dark fine gold grey lost red sad shy soft tall thin tiny warm wet wild";
constexpr const char* kPlaces = "barn cave gate hill lake mill road tree wall well";

struct Heroes {
  const char *pronoun, *possessive, *words;
};
constexpr Heroes kHeroes[] = {{"she", "her", "girl nun queen witch"},
                              {"he", "his", "boy duke king monk"},
                              {"it", "its", "bear cat fox owl"}};

struct Things {
  const char *kind, *words, *verbs;
};
constexpr Things kThings[] = {{"food", "bun cake pear plum", "ate baked shared"},
                              {"toy", "ball doll drum kite", "broke fixed kicked"},
                              {"cloth", "coat hat sock", "sewed washed wore"},
                              {"paper", "book map note", "copied read tore"}};

std::vector<std::string> split(const std::string& words) {
  std::istringstream in(words);
  return {std::istream_iterator<std::string>(in), {}};
}
std::vector<Grammar::Alternative> one_of(const std::string& words) {
  std::vector<Grammar::Alternative> all;
  for (const std::string& word : split(words)) all.push_back({word});
  return all;
}

// Defines the rest of a tale after the hero's name. Each hero has its own symbols, because the last sentence
// repeats the hero and the thing.
void define_story(Grammar& grammar, const std::string& pronoun, const std::string& hero) {
  grammar.define("who " + hero, {{pronoun}, {"the " + hero}});
  std::vector<Grammar::Alternative> stories;
  for (const Things& things : kThings)
    for (const std::string& thing : split(things.words))
      stories.push_back({" {found} a {adjective} " + thing + ". {middle " + pronoun + "}{who " + hero +
                         "} {" + things.kind + "} the " + thing + ".\n"});
  grammar.define("story " + hero, stories);
}

Grammar build() {
  Grammar grammar;
  grammar.define("adjective", one_of(kAdjectives));
  grammar.define("place", one_of(kPlaces));
  grammar.define("found", one_of("bought drew found hid made saw stole"));
  grammar.define("rested", one_of("danced ran sang sat slept stood swam wept"));
  grammar.define("by", one_of("behind by near under"));
  grammar.define("met", one_of("called helped hugged met"));
  grammar.define("friend", one_of("brother friend sister twin"));
  for (const Things& things : kThings) grammar.define(things.kind, one_of(things.verbs));

  std::vector<Grammar::Alternative> heroes;
  for (const Heroes& of : kHeroes) {
    const std::string pronoun = of.pronoun, possessive = of.possessive, deed = "deed " + pronoun;
    grammar.define(deed, {{pronoun + " {rested} {by} the {adjective} {place}. ", 2},
                          {pronoun + " {met} " + possessive + " {adjective} {friend}. "}});
    grammar.define("middle " + pronoun, {{""}, {"{" + deed + "}", 2}, {"{" + deed + "}{" + deed + "}"}});
    for (const std::string& hero : split(of.words)) {
      define_story(grammar, pronoun, hero);
      heroes.push_back({hero + "{story " + hero + "}"});
    }
  }
  grammar.define("hero", heroes);
  grammar.define("tale", {{"a {adjective} {hero}"}});
  return grammar;
}

}  // namespace

const Grammar& tales_grammar() {
  static const Grammar grammar = build();
  return grammar;
}

std::string tale(uint64_t seed, std::string_view stream, uint64_t index) {
  RandomKey key = random_key(seed, "data.tales." + std::string(stream));
  key.counter = index;
  return tales_grammar().sample(key).text;
}

std::string tales(uint64_t seed, std::string_view stream, int64_t characters) {
  std::string text;
  for (uint64_t i = 0; static_cast<int64_t>(text.size()) < characters; ++i) text += tale(seed, stream, i);
  return text;
}

double tales_floor() { return tales_grammar().entropy() / tales_grammar().mean_length(); }

double tales_window_loss(std::string_view window) {
  const Grammar& grammar = tales_grammar();
  const double loss =
      grammar.window_log_probability(window.substr(0, 1)) - grammar.window_log_probability(window);
  check(std::isfinite(loss), "tales", "\"{}\" does not occur in any tales", window);
  return loss;
}

double tale_log_probability(std::string_view tale) {
  size_t reached = 0;
  const std::vector<double> found = tales_grammar().derivations(tale, &reached);
  check(found.size() == 1, "tales",
        "\"{}\" is not a tale: the grammar generates only {} of its {} characters", tale, reached,
        tale.size());
  return found.front();
}

}  // namespace bonsai
