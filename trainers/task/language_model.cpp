#include "bonsai/trainers/task/language_model.h"

#include "bonsai/data/tales.h"
#include "bonsai/data/tokenizer/char.h"
#include "bonsai/trainers/generate.h"

namespace bonsai {

void LanguageModel::visit(Visitor& v) {
  v("source", source_, "tales: generated tiny tales; file: a text file; random: random ids, to measure speed",
    OneOf{{"tales", "file", "random"}});
  if (source_ == "file") {
    v("path", path_, "path of the text file, relative to the folder of the config file");
  } else {
    v("characters", characters_, "number of characters of the tales, or of random ids", between(1000, 1e8));
    v("seed", seed_, "seed of the tales or ids", at_least(0));
  }
  if (source_ == "random") v("vocabulary", vocabulary_, "number of different ids", between(2, 1000000));
  else v.choice("tokenizer", tokenizer_kind_, "the tokenizer");
  v("validation_fraction", validation_fraction_,
    "fraction of the data that is held back for validation; the end of a file", between(0.001, 0.9));
}

void LanguageModel::resolve(const std::filesystem::path& folder) {
  if (source_ == "file" && !path_.empty())
    path_ = std::filesystem::absolute(folder / path_).lexically_normal().string();
}

void LanguageModel::evaluate_file(const std::filesystem::path& file, bool whole) {
  source_ = "file", path_ = std::filesystem::absolute(file).string();
  use_ = whole ? Use::whole : Use::held_back;
}

// A path that comes from a checkpoint may be a file of someone else, so errors quote nothing of its text.
std::vector<int32_t> LanguageModel::encoded(const std::string& text) const {
  try {
    return tokenizer_->encode(text);
  } catch (const UnknownCharacter& e) {
    if (use_ != Use::training) fail("data", "{}: {}", path_, e.what());
    fail("data", "{}: the character at byte {} is not one of the {} that the model knows", path_, e.byte,
         vocab_size());
  }
}

Split LanguageModel::read(std::shared_ptr<Tokenizer> tokenizer) {
  const auto seed = static_cast<uint64_t>(seed_);
  if (source_ == "random") {
    std::vector<char32_t> characters;  // arbitrary, because they are never read
    for (int64_t i = 0; i < vocabulary_; ++i) characters.push_back(static_cast<char32_t>(0x10000 + i));
    tokenizer_ = std::make_shared<CharTokenizer>(characters);
    std::vector<int32_t> ids(static_cast<size_t>(characters_));
    const RandomKey key = random_key(seed, "random ids");
    for (size_t i = 0; i < ids.size(); ++i)
      ids[i] = static_cast<int32_t>(random_uniform(key, i) * static_cast<double>(vocabulary_));
    return split_tokens(std::move(ids), validation_fraction_);
  }
  if (from_tales()) {
    const std::string train = tales(seed, "train", characters_);
    const auto held_back = static_cast<int64_t>(static_cast<double>(characters_) * validation_fraction_);
    const std::string validation = tales(seed, "validation", held_back);
    tokenizer_ = tokenizer ? std::move(tokenizer)
                           : tokenizer_kind_.make(TokenizerSource{.text = train + validation});
    return {tokenizer_->encode(train), tokenizer_->encode(validation)};
  }
  check(!path_.empty(), "data", "data.path is empty; name the text file");
  const std::string text = read_text(path_);
  tokenizer_ = tokenizer ? std::move(tokenizer) : tokenizer_kind_.make(TokenizerSource{.text = text});
  if (use_ == Use::whole) return {{}, encoded(text)};
  return split_tokens(encoded(text), validation_fraction_);
}

void LanguageModel::prepare(int64_t block_size, uint64_t, std::shared_ptr<Tokenizer> tokenizer) {
  Split split = read(std::move(tokenizer));
  if (use_ == Use::whole) {
    validation_.emplace("text", std::move(split.validation), block_size, vocab_size(), Rest::padded);
    return;
  }
  check(use_ == Use::training || std::ssize(split.validation) > block_size, "data",
        "{}: the validation split has {} tokens, but needs at least block_size {} + 1; --whole evaluates all "
        "of the file",
        path_, split.validation.size(), block_size);
  if (use_ == Use::training) train_.emplace("train", std::move(split.train), block_size, vocab_size());
  validation_.emplace("validation", std::move(split.validation), block_size, vocab_size());
  identity_ = Task::identity();
  identity_.erase("data.path");       // a moved file has the same data
  identity_.erase("data.tokenizer");  // the checkpoint has the tokenizer itself
  if (train_) identity_["training"] = train_->identity();
  identity_["validation"] = validation_->identity();
}

double LanguageModel::floor() const { return from_tales() ? tales_floor() : NAN; }

Batch LanguageModel::batch(const BatchIndex& index, int64_t batch_size) const {
  return train_->random(index, batch_size);
}

Evaluation LanguageModel::evaluate(Model& model, int64_t batch_size, int64_t max_batches,
                                   const Poll& poll) const {
  const auto draw = [&](int64_t first, int64_t) {
    return validation_->evaluation(first / batch_size, batch_size);
  };
  return evaluation_over(model, validation_->blocks(), batch_size, max_batches, poll, draw);
}

// Starts after a newline if the tokenizer has one, which is the start of a tale or a line.
std::string LanguageModel::sample(Model& model, uint64_t seed, const Poll& poll) const {
  std::vector<int32_t> start{0};
  try {
    start = tokenizer_->encode("\n");
  } catch (const Error&) {
  }
  const auto ids = generate(model, start, 120, {.temperature = 0.5, .seed = seed}, {}, {}, poll);
  return tokenizer_->decode(std::span(ids).subspan(1));
}

void register_language_model() { add_part<TaskKind, LanguageModel>("language_model"); }

}  // namespace bonsai
