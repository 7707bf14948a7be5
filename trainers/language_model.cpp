#include "trainers/language_model.h"

#include "data/tales.h"
#include "data/text.h"
#include "trainers/generate.h"

namespace bonsai {

void LanguageModel::visit(Visitor& v) {
  v("source", source_, "tiny tales that Bonsai makes, a text file, or random ids to measure speed with",
    OneOf{{"tales", "file", "random"}});
  if (source_ == "file") {
    v("path", path_, "the text file; a relative one stands beside the config file");
  } else {
    v("characters", characters_, "length of the tales, or number of ids", between(1000, 1e9));
    v("seed", seed_, "of the tales or ids", at_least(0));
  }
  if (source_ == "random") v("vocabulary", vocabulary_, "number of different ids", between(2, 1000000));
  v("validation_fraction", validation_fraction_, "held back for validation: the end of a file",
    between(0.001, 0.9));
}

void LanguageModel::resolve(const std::filesystem::path& folder) {
  if (source_ == "file" && !path_.empty())
    path_ = std::filesystem::absolute(folder / path_).lexically_normal().string();
}

std::filesystem::path LanguageModel::missing_file() const {
  return source_ == "file" && !std::filesystem::exists(path_) ? path_ : "";
}

void LanguageModel::prepare(int64_t block_size, uint64_t, std::shared_ptr<Tokenizer> tokenizer) {
  check(source_ != "file" || !path_.empty(), "data", "data.path is empty; name the text file");
  const auto seed = static_cast<uint64_t>(seed_);
  Split split;
  if (source_ == "random") {
    std::vector<char32_t> characters;  // any will do: nobody reads them
    for (int64_t i = 0; i < vocabulary_; ++i) characters.push_back(static_cast<char32_t>(0x10000 + i));
    tokenizer_ = std::make_shared<CharTokenizer>(characters);
    std::vector<int32_t> ids(static_cast<size_t>(characters_));
    const RandomKey key = random_key(seed, "random ids");
    for (size_t i = 0; i < ids.size(); ++i)
      ids[i] = static_cast<int32_t>(random_uniform(key, i) * static_cast<double>(vocabulary_));
    split = split_tokens(std::move(ids), validation_fraction_);
  } else if (from_tales()) {
    const std::string train = tales(seed, "train", characters_);
    const auto held_back = static_cast<int64_t>(static_cast<double>(characters_) * validation_fraction_);
    const std::string validation = tales(seed, "validation", held_back);
    tokenizer_ = tokenizer ? std::move(tokenizer) : std::make_shared<CharTokenizer>(train + validation);
    split = {tokenizer_->encode(train), tokenizer_->encode(validation)};
  } else {
    const std::string text = read_text(path_);
    tokenizer_ = tokenizer ? std::move(tokenizer) : std::make_shared<CharTokenizer>(text);
    split = split_tokens(tokenizer_->encode(text), validation_fraction_);
  }
  train_.emplace("train", std::move(split.train), block_size, vocab_size());
  validation_.emplace("validation", std::move(split.validation), block_size, vocab_size());
}

double LanguageModel::floor() const { return from_tales() ? tales_floor() : NAN; }

Batch LanguageModel::batch(const BatchIndex& index, int64_t batch_size) const {
  return train_->random(index, batch_size);
}

Evaluation LanguageModel::evaluate(Decoder& model, int64_t batch_size, int64_t most_batches,
                                   const Poll& poll) const {
  const auto draw = [&](int64_t first, int64_t) {
    return validation_->evaluation(first / batch_size, batch_size);
  };
  return evaluation_over(model, validation_->blocks(), batch_size, most_batches, poll, draw);
}

// From the start of a tale, or of a line where the text has lines.
std::string LanguageModel::sample(Decoder& model, uint64_t seed, const Poll& poll) const {
  std::vector<int32_t> start{0};
  try {
    start = tokenizer_->encode("\n");
  } catch (const Error&) {
  }
  const auto ids = generate(model, start, 120, {.temperature = 0.5, .seed = seed}, {}, {}, poll);
  return tokenizer_->decode(std::span(ids).subspan(1));
}

}  // namespace bonsai
