// Tiny tales: a text of the project's own whose entropy is known, so that a loss can be compared with the
// best there is, and no file has to be fetched. One tale:
//
//   a shy girl found a red pear. she slept by the cold mill. the girl ate the pear.
//
// What there is to learn: spelling; the pronoun of each hero (she, he, it) and its possessive; the thing and
// the hero of the first sentence come back in the last; what can be done with a thing depends on its kind.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "bonsai/data/grammar.h"

namespace bonsai {

const Grammar& tales_grammar();

// Tale `index` of a stream, ending with a newline. A stream is a seed and a name: give "train" and
// "validation", and the two are drawn independently.
std::string tale(uint64_t seed, std::string_view stream, uint64_t index);
// Tales 0, 1, ... of the stream, until there are at least so many characters; always whole tales.
std::string tales(uint64_t seed, std::string_view stream, int64_t characters);

// The entropy of the text in nats a character: that of a tale over its mean length. Tales are independent
// and each ends with a newline, so this is what a long text costs the best predictor that has seen all of it
// so far. No model that begins at arbitrary places can beat it on new tales; on those that it was trained on
// it can, by knowing them by heart.
double tales_floor();

// What the best predictor pays, in nats, for all characters of a window but the first, when the first is all
// that it was given: the least expected sum of the loss over a block of T targets, for a window of T + 1
// characters. On average it exceeds T * tales_floor() by 4 (T = 16) to 5.5 nats (T from 64 on): where in
// which tale is this?
double tales_window_loss(std::string_view window);

// In nats. An Error says how far the text could be followed where it is not a tale with its newline.
double tale_log_probability(std::string_view tale);

}  // namespace bonsai
