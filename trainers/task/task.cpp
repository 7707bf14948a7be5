#include "bonsai/trainers/task/task.h"

#include <algorithm>
#include <limits>

#include "bonsai/data/tokenizer/char.h"
#include "bonsai/framework/config/document.h"
#include "bonsai/framework/config/print.h"
#include "bonsai/framework/ops/ops.h"

namespace bonsai {

void Task::evaluate_file(const std::filesystem::path&, bool) {
  throw ConfigError(fmt::format("--data: a model of the task {} reads no text file", name()));
}

DataIdentity Task::identity() const {
  KeyCollector keys;
  const_cast<Task&>(*this).visit(keys);  // a KeyCollector only reads
  DataIdentity identity;
  for (const ConfigKey& key : keys.take())
    if (!key.is_section()) identity["data." + key.path] = key.text();
  return identity;
}

DataIdentity Task::drawn_with(uint64_t seed) const {
  DataIdentity identity = Task::identity();
  identity["trainer.seed"] = std::to_string(seed);
  return identity;
}

Batch Task::prompt(const Tokenizer& tokenizer, const std::string& text) const {
  const std::vector<int32_t> ids = tokenizer.encode(text);
  return {.inputs = from<int32_t>({1, static_cast<int64_t>(ids.size())}, ids), .targets = {}};
}

int64_t Task::answer_length(const Batch&, int64_t) const { return std::numeric_limits<int64_t>::max(); }

Source source_of(const Batch& batch) {
  return {.ids = batch.source, .padding_mask = batch.source_padding_mask};
}

LossSum loss_of(Model& model, const Batch& batch, Context& context) {
  LossSum loss;
  for (int32_t target : batch.targets.span<int32_t>()) loss.tokens += target != kIgnore;
  const Batch here = batch.to(model.build().device);
  context.source = source_of(here);
  loss.sum = cross_entropy(model(here.inputs, context), here.targets,
                           {.ignore_index = kIgnore, .reduction = CrossEntropyOptions::sum});
  return loss;
}

Evaluation evaluation_over(Model& model, int64_t rows, int64_t batch_size, int64_t max_batches,
                           const Poll& poll, const std::function<Batch(int64_t, int64_t)>& draw,
                           const std::function<int64_t(const Batch&)>& right) {
  double sum = 0;
  int64_t tokens = 0, drawn = 0, matched = 0;
  for (int64_t i = 0; drawn < rows && (max_batches == 0 || i < max_batches); ++i) {
    poll();
    Context context;
    const Batch batch = draw(drawn, std::min(batch_size, rows - drawn));
    const LossSum loss = loss_of(model, batch, context);
    sum += loss.sum.item();
    tokens += loss.tokens;
    drawn += batch.inputs.size(0);
    if (right) matched += right(batch);
  }
  Evaluation e{.loss = sum / static_cast<double>(tokens)};
  if (right) e.exact_match = static_cast<double>(matched) / static_cast<double>(drawn);
  return e;
}

std::shared_ptr<Tokenizer> letters(int64_t count, const std::string& others) {
  std::vector<char32_t> symbols;
  for (int64_t i = 0; i < count; ++i) symbols.push_back(U'a' + static_cast<char32_t>(i));
  symbols.insert(symbols.end(), others.begin(), others.end());
  return std::make_shared<CharTokenizer>(symbols);
}

}  // namespace bonsai
