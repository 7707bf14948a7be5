// Tiny tales: generated text whose entropy is known, so that a loss can be compared with its lower bound, and
// no file has to be downloaded. One tale:
//
//   a shy girl found a red pear. she slept by the cold mill. the girl ate the pear.
//
// What a model can learn: spelling; the pronoun of each hero (she, he, it) and its possessive; that the last
// sentence repeats the thing and the hero of the first; that the verbs used with a thing depend on its kind.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "bonsai/data/grammar.h"

namespace bonsai {

// The grammar of the tales.
const Grammar& tales_grammar();

// Tale `index` of a stream, ending with a newline. A stream is a seed and a name; the streams "train" and
// "validation" of a seed are independent.
std::string tale(uint64_t seed, std::string_view stream, uint64_t index);
// Tales 0, 1, ... of the stream, as many whole tales as give at least `characters` characters.
std::string tales(uint64_t seed, std::string_view stream, int64_t characters);

// The entropy in nats per character: the entropy of a tale divided by its mean length. Tales are independent
// and end with a newline, so this is the loss of the best predictor that sees all of the preceding text. No
// model can have a lower loss on new tales; on tales that it was trained on it can, by memorising them.
double tales_floor();

// The loss in nats of the best predictor for all characters of a window but the first, if it sees nothing
// before the window. For a window of T + 1 characters this is the lower bound of the loss summed over a block
// of T targets. On average it exceeds T * tales_floor() by 4 nats (T = 16) to 5.5 nats (T >= 64), the cost of
// not knowing the position in the tale.
double tales_window_loss(std::string_view window);

// In nats. Throws unless `tale` is a tale with its newline; the Error says how many characters the grammar
// can generate.
double tale_log_probability(std::string_view tale);

}  // namespace bonsai
