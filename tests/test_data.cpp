// Text that is too short, ids out of range and left-over blocks must be handled before step 1, and the lower
// bound of the loss must be correct.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <numeric>
#include <set>

#include "bonsai/data/batcher.h"
#include "bonsai/data/grammar.h"
#include "bonsai/data/tales.h"
#include "bonsai/data/text.h"
#include "bonsai/data/tokenizer/char.h"
#include "bonsai/tests/folder.h"
#include "bonsai/tests/support.h"

namespace bonsai {
namespace {

using test::error_of;
using Ids = std::vector<int32_t>;

#define EXPECT_SAYS(call, part)                            \
  do {                                                     \
    const std::string said = error_of([&] { call; });      \
    EXPECT_NE(said.find(part), std::string::npos) << said; \
  } while (false)

Ids count_to(int32_t n) {
  Ids ids(static_cast<size_t>(n));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

// ---- Text

class TextFile : public testing::Test {
 protected:
  std::filesystem::path with(const std::string& bytes) const {
    std::ofstream(folder / "text", std::ios::binary) << bytes;
    return folder / "text";
  }
  test::Folder temporary;
  std::filesystem::path folder = temporary.path();
};

TEST_F(TextFile, ComesUnchanged) {
  const std::string text =
      "\xEF\xBB\xBF"
      "a\r\nb\xE9";
  EXPECT_EQ(read_text(with(text)), text);
}

TEST_F(TextFile, WhatIsNoTextIsRefusedByName) {
  EXPECT_SAYS(read_text(folder / "none"), "none: cannot be opened");
  EXPECT_SAYS(read_text(folder), "it is a directory");
  EXPECT_SAYS(read_text("/dev/zero"), "/dev/zero: cannot be read: it is not a regular file");  // B74
  EXPECT_SAYS(read_text(with("")), "text: is empty");
  EXPECT_SAYS(read_text(with(std::string("ab\0c", 4))), "byte 2 is zero");
}

TEST(SplitTokens, TheEndIsHeldBack) {
  const Split split = split_tokens(count_to(10), 0.3);
  EXPECT_EQ(split.train, count_to(7));
  EXPECT_EQ(split.validation, (Ids{7, 8, 9}));
  EXPECT_EQ(split_tokens(count_to(100), 0.1).validation.size(), 10u);
  EXPECT_EQ(split_tokens(count_to(3), 0).train.size(), 3u);
  EXPECT_EQ(split_tokens({}, 0.5).train.size(), 0u);
  for (const double fraction : {1.0, -0.1, std::nan("")})
    EXPECT_SAYS(split_tokens(count_to(3), fraction), "validation_fraction must be");
}

// B28: nanoGPT draws from a negative range.
TEST(ShortData, IsRefusedWithTheSplitItsTokensAndTheLeastNeeded) {
  const auto batchers = [](const std::string& text, double fraction, int64_t block) {
    const CharTokenizer tokenizer(text);
    const Split split = split_tokens(tokenizer.encode(text), fraction);
    const Batcher train("train", split.train, block, tokenizer.vocab_size());
    const Batcher validation("validation", split.validation, block, tokenizer.vocab_size());
  };
  EXPECT_SAYS(batchers("hello world", 0, 64),
              "the train split has 11 tokens; block_size 64 needs at least 65");
  EXPECT_SAYS(batchers(std::string(100, 'x'), 0.1, 32),
              "the validation split has 10 tokens; block_size 32 needs at least 33");
  EXPECT_SAYS(batchers("x", 0, 1), "the train split has 1 tokens; block_size 1 needs at least 2");
  EXPECT_SAYS(batchers("hello world", 0, INT64_MAX), "needs at least 9223372036854775808");
  EXPECT_SAYS(batchers("hello world", 0, 0), "block_size must be at least 1, got 0");
  EXPECT_SAYS(batchers("hello world", 0, -1), "block_size must be at least 1, got -1");
  EXPECT_SAYS(batchers("", 0, 1), "at least one character");
  EXPECT_SAYS(Batcher("train", {}, 1, 1), "the train split has 0 tokens");
}

// ---- Tokenizer

TEST(CharTokenizer, NumbersCharactersInOrderOfCodePoints) {
  const CharTokenizer tokenizer("b\u00e9a\U0001F333b");
  EXPECT_EQ(tokenizer.vocab_size(), 4);
  EXPECT_EQ(tokenizer.encode("ab\u00e9\U0001F333"), count_to(4));
  EXPECT_EQ(tokenizer.decode(Ids{3, 0, 2}), "\U0001F333a\u00e9");
  EXPECT_TRUE(tokenizer.encode("").empty());
  EXPECT_EQ(CharTokenizer(std::string("\0z", 2)).encode(std::string("z\0", 2)), (Ids{1, 0}));
}

// Any bytes can be trained on: truncated, overlong and surrogate forms are encoded as bytes, without an
// error.
TEST(CharTokenizer, BytesThatAreNotUtf8ComeBackUnchanged) {
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  for (const std::string& text :
       {all, std::string("caf\xE9"), std::string("\xC0\x80"), std::string("\xED\xA0\x80"),
        std::string("\xE2\x82"), std::string("\xF4\x8F\xBF\xBF"), std::string("\xF4\x90\x80\x80"),
        std::string("\xC3\xA9\xC3"), "\u20ac" + all}) {
    const CharTokenizer tokenizer(text);
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
    const auto again = Tokenizer::from_serialised(tokenizer.serialise());
    EXPECT_EQ(again->decode(again->encode(text)), text);
  }
  EXPECT_EQ(CharTokenizer(all).vocab_size(), 256);
  EXPECT_EQ(CharTokenizer("\xF4\x8F\xBF\xBF").vocab_size(), 1);
  EXPECT_EQ(CharTokenizer("\xED\xA0\x80").vocab_size(), 3);
}

TEST(CharTokenizer, AnUnknownCharacterIsNamedWithItsPlace) {
  const CharTokenizer tokenizer("abc");
  EXPECT_SAYS(tokenizer.encode("ab\u00e9"),
              "the character '\u00e9' (U+00E9) at byte 2 is not one of the 3 characters");
  EXPECT_SAYS(tokenizer.encode("\n"), "the character U+000A at byte 0");
  EXPECT_SAYS(tokenizer.encode("a\xE9"), "the byte 0xE9, which is not valid UTF-8, at byte 1");
  EXPECT_SAYS(tokenizer.decode(Ids{0, 3}), "id 3 at position 1 is outside the vocabulary of 3");
}

TEST(CharTokenizer, LivesInAString) {
  const CharTokenizer tokenizer("one day\n");
  const std::string stored = tokenizer.serialise();
  const auto again = Tokenizer::from_serialised(stored);
  EXPECT_EQ(again->serialise(), stored);
  EXPECT_EQ(again->vocab_size(), tokenizer.vocab_size());
  EXPECT_EQ(again->encode("day one"), tokenizer.encode("day one"));
}

TEST(CharTokenizer, AStoredStringIsNotBelieved) {
  for (const char* text : {"", "{", "[]", "7", R"({"kind":7})", R"({"characters":[1]})"})
    EXPECT_SAYS(Tokenizer::from_serialised(text), "is not a JSON object with a \"kind\"");
  EXPECT_SAYS(Tokenizer::from_serialised(R"({"kind":"bpe"})"), "unknown kind \"bpe\"; known: char");
  EXPECT_SAYS(Tokenizer::from_serialised(R"({"kind":"char"})"), "no array");
  const auto with = [](const std::string& list) {
    return Tokenizer::from_serialised(R"({"kind":"char","characters":)" + list + "}");
  };
  EXPECT_SAYS(with("[]"), "at least one character");
  EXPECT_SAYS(with("[98,97]"), "characters 0 and 1 are not in ascending order");
  EXPECT_SAYS(with("[97,97]"), "not in ascending order");
  EXPECT_SAYS(with("[55296]"), "U+D800 is not one");
  for (const char* list : {"[-1]", "[1114112]", "[97.0]", "[\"a\"]", "[18446744073709551615]"})
    EXPECT_SAYS(with(list), "entry 0 of the stored characters is not a code point");
}

// ---- Ids

// B30
TEST(Ids, OutsideTheVocabularyAreRefusedWithValueAndPlace) {
  EXPECT_NO_THROW(check_ids("inputs", Ids{0, 9}, 10));
  EXPECT_SAYS(check_ids("inputs", Ids{9, 10}, 10),
              "inputs: id 10 at position 1 is outside the vocabulary of 10");
  EXPECT_SAYS(check_ids("inputs", Ids{-1}, 10), "id -1 at position 0");
  EXPECT_NO_THROW(check_ids("targets", Ids{9, -1}, 10, -1));
  EXPECT_SAYS(check_ids("targets", Ids{-1, 10}, 10, -1), "targets: id 10 at position 1");
  EXPECT_SAYS(check_ids("targets", Ids{9, -4}, 10, -1), "id -4 at position 1");
  EXPECT_SAYS(Batcher("train", count_to(11), 4, 10), "the train split: id 10 at position 10");
}

TEST(Ids, Above16BitsStayWhatTheyAre) {
  const Batch batch = Batcher("train", {70000, 4464, 70000}, 2, 100000).at(std::vector<int64_t>{0});
  EXPECT_EQ(batch.inputs.values(), (std::vector<double>{70000, 4464}));
  EXPECT_EQ(batch.targets.values(), (std::vector<double>{4464, 70000}));
}

// ---- Batches

TEST(Batcher, GivesTheWindowsAskedFor) {
  const Batcher data("train", count_to(6), 3, 6);
  const Batch batch = data.at(std::vector<int64_t>{2, 0});
  EXPECT_EQ(batch.inputs.dtype(), DType::i32);
  EXPECT_EQ(batch.inputs.shape(), (Shape{2, 3}));
  EXPECT_EQ(batch.inputs.values(), (std::vector<double>{2, 3, 4, 0, 1, 2}));
  EXPECT_EQ(batch.targets.values(), (std::vector<double>{3, 4, 5, 1, 2, 3}));
  EXPECT_SAYS(data.at(std::vector<int64_t>{3}), "no window at 3; the last begins at 2");
  EXPECT_SAYS(data.at(std::vector<int64_t>{-1}), "no window at -1");
}

TEST(Batcher, ARandomBatchDependsOnItsNumbersAlone) {
  const Batcher data("train", count_to(1000), 8, 1000);
  const BatchIndex index{.seed = 5, .step = 7, .micro_batch = 1};
  const Batch batch = data.random(index, 6);
  data.random({.seed = 5}, 3);
  EXPECT_TRUE(same_bits(data.random(index, 6).inputs, batch.inputs));
  for (const BatchIndex& other :
       {BatchIndex{6, 7, 1}, {5, 8, 1}, {5, 7, 2}, {5, 7 + (1 << 16), 1}, {5, 7, 1, 6}})
    EXPECT_FALSE(same_bits(data.random(other, 6).inputs, batch.inputs));
  EXPECT_SAYS(data.random({.step = -1}, 1), "step -1");
  EXPECT_SAYS(data.random({.step = int64_t{1} << 32}, 1), "step 4294967296");
  EXPECT_SAYS(data.random({.micro_batch = 65536}, 1), "micro-batch 65536");
  EXPECT_SAYS(data.random({}, 0), "batch_size must be at least 1, got 0");
}

TEST(Batcher, RanksShareABatchByRows) {
  const Batcher data("train", count_to(500), 4, 500);
  const Batch whole = data.random({.seed = 1, .step = 3}, 5);
  EXPECT_TRUE(same_bits(data.random({.seed = 1, .step = 3}, 2).inputs, whole.inputs.alias({2, 4})));
  EXPECT_TRUE(same_bits(data.random({.seed = 1, .step = 3, .first_row = 2}, 3).inputs,
                        whole.inputs.alias({3, 4}, 8)));
}

// 12000 draws of 6 starts: each start, the last included, occurs 2000 times within 5 standard deviations.
TEST(Batcher, StartsAreUniformUpToTheLast) {
  const Batcher data("train", count_to(10), 4, 10);
  std::map<double, int> times;
  const auto inputs = data.random({.seed = 3}, 12000).inputs.values();
  for (size_t i = 0; i < inputs.size(); i += 4) ++times[inputs[i]];
  EXPECT_EQ(times.size(), 6u);
  for (const auto& [start, n] : times) EXPECT_NEAR(n, 2000, 205) << start;
  const Batcher tight("train", count_to(5), 4, 5);
  EXPECT_EQ(tight.random({}, 1).targets.values(), (std::vector<double>{1, 2, 3, 4}));
}

// B29
TEST(Evaluation, TheLastBatchIsShortAndEveryEpochTheSame) {
  const Batcher data("validation", count_to(54), 8, 54);
  EXPECT_EQ(data.blocks(), 6);
  for (int epoch = 0; epoch < 5; ++epoch) {
    ASSERT_EQ(data.evaluation_batches(4), 2);
    EXPECT_EQ(data.evaluation(0, 4).inputs.shape(), (Shape{4, 8}));
    EXPECT_EQ(data.evaluation(1, 4).inputs.shape(), (Shape{2, 8}));
  }
  ASSERT_EQ(data.evaluation_batches(16), 1);
  EXPECT_EQ(data.evaluation(0, 16).inputs.shape(), (Shape{6, 8}));
  ASSERT_EQ(data.evaluation_batches(INT64_MAX), 1);
  EXPECT_EQ(data.evaluation(0, INT64_MAX).inputs.shape(), (Shape{6, 8}));
  EXPECT_SAYS(data.evaluation(2, 4), "no evaluation batch 2; it has 2");
  EXPECT_SAYS(data.evaluation(-1, 4), "no evaluation batch -1");
  EXPECT_SAYS(data.evaluation_batches(0), "batch_size must be at least 1");
}

TEST(Evaluation, EachTargetCountsOnceInOrder) {
  for (const int32_t tokens : {9, 16, 17, 18, 54}) {
    const Batcher data("validation", count_to(tokens), 8, tokens);
    std::vector<double> seen, expected;
    for (int64_t i = 0; i < data.evaluation_batches(2); ++i)
      for (const double target : data.evaluation(i, 2).targets.values()) seen.push_back(target);
    for (int32_t i = 1; i <= (tokens - 1) / 8 * 8; ++i) expected.push_back(i);
    EXPECT_EQ(seen, expected) << tokens;
  }
}

// ---- Grammar

Grammar small_grammar() {
  Grammar grammar;
  grammar.define("x", {{"a", 3}, {"b"}});
  grammar.define("s", {{"{x}.", 1}, {"{x}c{x}.", 2}, {"d."}});
  return grammar;
}

TEST(Evaluation, PaddedTheRestIsABlockToo) {  // B44
  for (const int64_t length : {2, 5, 9, 10, 17, 20}) {
    Ids ids(static_cast<size_t>(length));
    std::iota(ids.begin(), ids.end(), 0);
    const Batcher batcher("text", ids, 8, length, Rest::padded);
    Ids seen;
    for (int64_t i = 0; i < batcher.evaluation_batches(2); ++i) {
      const Batch batch = batcher.evaluation(i, 2);
      const auto inputs = batch.inputs.span<int32_t>(), targets = batch.targets.span<int32_t>();
      for (size_t k = 0; k < targets.size(); ++k) {
        if (targets[k] == kIgnore) continue;
        EXPECT_EQ(inputs[k] + 1, targets[k]);
        seen.push_back(targets[k]);
      }
    }
    EXPECT_EQ(seen, Ids(ids.begin() + 1, ids.end())) << length;
  }
  EXPECT_SAYS(Batcher("text", {0}, 8, 1, Rest::padded), "has 1 tokens");
}

TEST(Grammar, ProbabilitiesOfAllTextsAddUpToOne) {
  const Grammar grammar = small_grammar();
  double sum = 0, entropy = 0, length = 0;
  const std::vector<std::string> all{"a.", "b.", "aca.", "acb.", "bca.", "bcb.", "d."};
  for (const auto& text : all) {
    const auto found = grammar.derivations(text);
    ASSERT_EQ(found.size(), 1u) << text;
    const double p = std::exp(found[0]);
    sum += p;
    entropy -= p * found[0];
    length += p * static_cast<double>(text.size());
  }
  EXPECT_NEAR(sum, 1, 1e-14);
  EXPECT_NEAR(grammar.entropy(), entropy, 1e-14);
  EXPECT_NEAR(grammar.mean_length(), length, 1e-14);
  EXPECT_EQ(grammar.count(), all.size());
  EXPECT_NEAR(grammar.derivations("acb.")[0], std::log(0.5 * 0.75 * 0.25), 1e-14);
  for (const char* text : {"", "a", "a.a.", "ac.", "e."})
    EXPECT_TRUE(grammar.derivations(text).empty()) << text;
}

TEST(Grammar, SamplesAreAsFrequentAsTheyAreProbable) {
  const Grammar grammar = small_grammar();
  std::map<std::string, int> times;
  for (uint64_t i = 0; i < 16000; ++i) ++times[grammar.sample({1, i}).text];
  EXPECT_EQ(times.size(), 7u);
  for (const auto& [text, n] : times) {
    const double p = std::exp(grammar.derivations(text)[0]);
    EXPECT_NEAR(n, 16000 * p, 5 * std::sqrt(16000 * p * (1 - p))) << text;
  }
}

TEST(Grammar, ShowsAmbiguity) {
  Grammar grammar;
  grammar.define("x", {{"a"}, {"ab"}});
  grammar.define("y", {{"c"}, {"bc"}});
  grammar.define("s", {{"{x}{y}"}});
  EXPECT_EQ(grammar.derivations("abc").size(), 2u);
  EXPECT_EQ(grammar.derivations("abbc").size(), 1u);
}

TEST(Grammar, MistakesInItAreTold) {
  Grammar grammar;
  EXPECT_SAYS(grammar.entropy(), "has no symbols");
  grammar.define("nothing", {{""}, {"a"}});
  EXPECT_SAYS(grammar.window_log_probability("b"), "generates an empty text");
  EXPECT_SAYS(grammar.define("s", {{"{s}a"}}), "not defined before it");
  EXPECT_SAYS(grammar.define("s", {{"{s"}}), "a brace is not closed in \"{s\"");
  EXPECT_SAYS(grammar.define("s", {}), "{s} has no alternatives");
  EXPECT_SAYS(grammar.define("s", {{"a", 0}}), "has weight 0");
  grammar.define("s", {{"a"}});
  EXPECT_SAYS(grammar.define("s", {{"a"}}), "{s} is defined twice");
}

TEST(Grammar, WindowsOfAnEndlessRunHaveTheirFrequencies) {
  Grammar grammar;
  grammar.define("s", {{"a.", 3}, {"bb.", 1}});
  const double length = 2.25;
  const std::map<std::string, double> expected{{"", 1},
                                               {"a", 0.75 / length},
                                               {"b", 0.5 / length},
                                               {".", 1 / length},
                                               {"bb", 0.25 / length},
                                               {"b.", 0.25 / length},
                                               {".a", 0.75 / length},
                                               {"b.b", 0.25 * 0.25 / length},
                                               {".a.bb.a", 0.75 * 0.25 * 0.75 / length},
                                               {"ab", 0},
                                               {"bbb", 0}};
  for (const auto& [window, p] : expected)
    EXPECT_NEAR(std::exp(grammar.window_log_probability(window)), p, 1e-14) << window;
}

// ---- Tales

TEST(Tales, AreAFunctionOfSeedStreamAndIndex) {
  const std::string text = tales(1, "train", 3000);
  EXPECT_GE(text.size(), 3000u);
  EXPECT_EQ(text.back(), '\n');
  EXPECT_TRUE(tales(1, "train", 6000).starts_with(text));
  EXPECT_TRUE(text.starts_with(tale(1, "train", 0) + tale(1, "train", 1)));
  for (uint64_t i = 0; i < 100; ++i) {
    EXPECT_NE(tale(1, "train", i), tale(1, "validation", i));
    EXPECT_NE(tale(1, "train", i), tale(2, "train", i));
    EXPECT_NE(tale(1, "train", i), tale(1, "train", i + 1));
  }
  EXPECT_EQ(tales(1, "train", 0), "");
}

TEST(Tales, AreShortWordsInLowerCase) {
  const auto words = tales_grammar().words();
  EXPECT_GE(words.size(), 60u);
  EXPECT_LE(words.size(), 100u);
  EXPECT_GT(tales_grammar().count(), 1e12);
  const CharTokenizer tokenizer(tales(1, "train", 100000));
  EXPECT_EQ(tokenizer.decode(count_to(27)), "\n .abcdefghiklmnopqrstuvwxy");
}

// Each tale has exactly one derivation, so the entropy of the grammar is the entropy of the text.
TEST(Tales, HaveOneDerivationAndMeetTheFloor) {
  double nats = 0, characters = 0;
  for (uint64_t i = 0; i < 5000; ++i) {
    const auto made = tales_grammar().sample({12, i});
    const auto found = tales_grammar().derivations(made.text);
    ASSERT_EQ(found.size(), 1u) << made.text;
    ASSERT_NEAR(found[0], made.log_probability, 1e-12);
    nats -= found[0];
    characters += static_cast<double>(made.text.size());
  }
  EXPECT_NEAR(nats / characters / tales_floor(), 1, 0.01);
  EXPECT_NEAR(tales_floor(), 0.3025, 0.0001);
}

TEST(Tales, BreakingADependencyIsNoTale) {
  const std::string good =
      "a shy girl found a red pear. she slept by the cold mill. the girl ate the pear.\n";
  EXPECT_LT(tale_log_probability(good), -15);
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    return text.replace(text.rfind(from), from.size(), to);
  };
  EXPECT_SAYS(tale_log_probability(changed("she", "he")),
              "is not a tale: the grammar generates only 29 of its 79");
  EXPECT_SAYS(tale_log_probability(changed("girl", "queen")), "is not a tale");
  EXPECT_SAYS(tale_log_probability(changed("pear", "plum")), "is not a tale");
  EXPECT_SAYS(tale_log_probability(changed("ate", "wore")), "is not a tale");
  EXPECT_SAYS(tale_log_probability(changed("\n", "")), "is not a tale");
  EXPECT_SAYS(tale_log_probability(good + "a"), "80 of its 81");
  EXPECT_SAYS(tale_log_probability(""), "0 of its 0");
}

// For every window, the probabilities of the next character add up to 1.
TEST(Tales, NextCharactersAddUpToOne) {
  const std::string text = tales(4, "windows", 2000), alphabet = "\n .abcdefghiklmnopqrstuvwxy";
  for (size_t length : {0, 1, 5, 40, 100}) {
    const std::string window = text.substr(7 * length, length);
    double sum = 0;
    for (const char c : alphabet) sum += std::exp(tales_grammar().window_log_probability(window + c));
    EXPECT_NEAR(sum / std::exp(tales_grammar().window_log_probability(window)), 1, 1e-11) << window;
  }
}

TEST(Tales, AWindowCostsMoreThanTheFloorTheMoreTheShorter) {
  const std::string text = tales(4, "windows", 100 * 129);
  const auto loss = [&](size_t targets) {
    double sum = 0;
    for (size_t i = 0; i < 100; ++i) sum += tales_window_loss(text.substr(i * 129, targets + 1));
    return sum / 100 / static_cast<double>(targets);
  };
  EXPECT_NEAR(loss(128), tales_floor() + 5.5 / 128, 0.006);
  EXPECT_NEAR(loss(32), tales_floor() + 4.8 / 32, 0.02);
  EXPECT_SAYS(tales_window_loss("abc"), "does not occur in any tales");
}

}  // namespace
}  // namespace bonsai
