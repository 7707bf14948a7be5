// A task: what a model is trained on, and how one tells whether it has learned.
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "bonsai/data/batcher.h"
#include "bonsai/data/tokenizer/tokenizer.h"
#include "bonsai/framework/config/registry.h"
#include "bonsai/layers/model/model.h"
#include "bonsai/trainers/poll.h"

namespace bonsai {

// A sum over target tokens; divided by their number when it is reported.
struct LossSum {
  Tensor sum;
  int64_t tokens = 0;
};

struct Evaluation {
  double loss = NAN;         // mean over target tokens, in nats
  double exact_match = NAN;  // share of sequences answered without a mistake, where the task has answers
};

// What determines a task's data, by name: "validation_fraction" is "0.1", "training" "900 tokens, checksum
// ...".
using DataIdentity = std::map<std::string, std::string>;

class Task {
 public:
  virtual ~Task() = default;
  virtual std::string name() const = 0;
  virtual void visit(Visitor& v) = 0;  // the keys of the data section

  // Relative paths from now on stand below this folder.
  virtual void resolve(const std::filesystem::path&) {}
  // The file that prepare() reads; empty where it reads none.
  virtual std::filesystem::path file() const { return {}; }
  // prepare() will read this file, and only to evaluate on it: on the part of it that training would hold
  // back, or on the whole. A ConfigError where the task reads no file.
  virtual void evaluate_file(const std::filesystem::path& file, bool whole);
  // Reads or makes the data. A tokenizer is given where a checkpoint has one.
  virtual void prepare(int64_t block_size, uint64_t seed, std::shared_ptr<Tokenizer> tokenizer) = 0;
  // A run goes on only with the data that it began with: the same identity, once prepared. The keys of the
  // data section, unless the task knows better.
  virtual DataIdentity identity() const;
  virtual int64_t vocab_size() const = 0;
  virtual std::shared_ptr<Tokenizer> tokenizer() const = 0;
  virtual bool has_source() const { return false; }  // for an encoder
  virtual double floor() const { return NAN; }  // the lowest mean loss there can be, where it is known

  // A function of its arguments alone, so that a resumed run sees what it would have seen.
  virtual Batch batch(const BatchIndex& index, int64_t batch_size) const = 0;
  virtual Evaluation evaluate(Model& model, int64_t batch_size, int64_t max_batches,
                              const Poll& poll = kNoPoll) const = 0;
  // For people to look at.
  virtual std::string sample(Model& model, uint64_t seed, const Poll& poll = kNoPoll) const = 0;

  // What a model is given to go on from, one row: the text, unless the task has a source. A text that the
  // task would never ask about is an Error. Neither this nor the next two need preparation.
  virtual Batch prompt(const Tokenizer& tokenizer, const std::string& text) const;
  virtual int32_t end_token(const Tokenizer&) const { return -1; }  // what ends an answer; -1: nothing does
  // The most tokens that an answer to this prompt has, an end token included.
  virtual int64_t answer_length(const Batch& prompt, int64_t block_size) const;

 protected:
  // The identity of a task that draws its sequences: its keys, and the run's seed.
  DataIdentity drawn_with(uint64_t seed) const;
};

void register_trainer_parts();  // written by CMake

// A task is its own config: it is made without arguments and visited afterwards.
struct TaskKind {
  static constexpr const char *name = "task", *standard = "language_model";
  using Make = std::unique_ptr<Task>();
  static void register_all() { register_trainer_parts(); }
  template <class Part>
  static std::unique_ptr<Task> make(NoKeys) {
    return std::make_unique<Part>();
  }
};

// The source of a batch, as a model's context takes it.
Source source_of(const Batch& batch);

// The cross-entropy of the targets that are not kIgnore.
LossSum loss_of(Model& model, const Batch& batch, Context& context);

// Their mean over the rows, drawn in batches, or over so many batches of them (0: all); and the share of rows
// that are right, where `right` counts those of a batch.
Evaluation evaluation_over(Model& model, int64_t rows, int64_t batch_size, int64_t max_batches,
                           const Poll& poll, const std::function<Batch(int64_t first, int64_t count)>& draw,
                           const std::function<int64_t(const Batch&)>& right = {});

// The letters from a on, for tasks that make their own sequences, and what else they need, in ASCII.
std::shared_ptr<Tokenizer> letters(int64_t count, const std::string& others);

}  // namespace bonsai
