// Trains the config of tools/quickstart: in about a minute a decoder learns to write tales.
#include <fstream>

#include "bonsai/data/tales.h"
#include "bonsai/tests/program.h"

namespace bonsai::test {
namespace {

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words(1);
  for (char c : text) {
    if (c >= 'a' && c <= 'z')
      words.back() += c;
    else if (!words.back().empty())
      words.emplace_back();
  }
  words.pop_back();  // the last word may be incomplete
  return words;
}

// The standard error of the nats per character over `characters` characters. Tales are independent, and the
// nats of a tale differ from those expected for its length.
double error_of_floor(double characters) {
  double squares = 0;
  constexpr int kTales = 2000;
  for (int i = 0; i < kTales; ++i) {
    const std::string text = tale(7, "error of floor", static_cast<uint64_t>(i));
    const double excess = -tale_log_probability(text) - tales_floor() * static_cast<double>(text.size());
    squares += excess * excess;
  }
  const double length = tales_grammar().mean_length();
  return std::sqrt(squares / kTales / (characters / length)) / length;
}

TEST(ToyDecoder, WritesTheGrammarsWordsAndStaysAboveItsEntropy) {
  const Program program;
  const Outcome o =
      program.run({"train", BONSAI_SOURCE_DIR "/configs/toy_decoder.yaml", "--out", "toy", "--quiet"});
  ASSERT_EQ(o.status, 0) << o.err;

  std::string sample;
  std::vector<double> losses;
  std::ifstream metrics(program.folder.path() / "toy/metrics.jsonl");
  for (std::string line; std::getline(metrics, line);) {
    const auto object = nlohmann::json::parse(line);
    if (object.contains("sample")) sample = object["sample"];
    if (object.contains("val_loss")) losses.push_back(object["val_loss"]);
  }
  const auto known = tales_grammar().words();
  const auto words = words_of(sample);
  ASSERT_GE(words.size(), 10u) << sample;
  const auto right = std::count_if(words.begin(), words.end(), [&](const std::string& word) {
    return std::binary_search(known.begin(), known.end(), word);
  });
  EXPECT_GE(static_cast<double>(right), 0.9 * static_cast<double>(words.size())) << sample;

  ASSERT_GE(losses.size(), 2u);
  for (double loss : losses) EXPECT_GE(loss, tales_floor() - 3 * error_of_floor(100000));
  EXPECT_LT(losses.back(), 0.6);
  EXPECT_LT(losses.back(), losses.front() / 2);
}

}  // namespace
}  // namespace bonsai::test
