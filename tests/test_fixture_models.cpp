// GPT-2 and Llama against reference values from Hugging Face's transformers, computed by Bonsai's own
// decoder.
#include "bonsai/framework/ops/ops.h"
#include "bonsai/layers/pretrained.h"
#include "bonsai/tests/fixture.h"
#include "bonsai/trainers/generate.h"

namespace bonsai::test {
namespace {

struct Model {
  Model(const std::string& kind, DType dtype) : directory(fixtures() / "models" / kind),
      root({.dtype = dtype}) {
    load_weights(directory, transformer);
  }
  HuggingFaceDirectory directory;
  Module root;
  Transformer transformer{&root, "", transformer_config(directory)};
};

// Appends the id of the largest logit, with a full forward pass for each.
std::vector<double> continue_greedily(Transformer& transformer, std::vector<double> ids, size_t length) {
  while (ids.size() < length) {
    Context context;
    const auto logits = transformer(tensor({1, static_cast<int64_t>(ids.size())}, ids, DType::i32), context)
        .values();
    const auto last = logits.end() - transformer.config().vocab_size;
    ids.push_back(static_cast<double>(std::max_element(last, logits.end()) - last));
  }
  return ids;
}

class FixtureModels : public testing::TestWithParam<std::string> {};

TEST_P(FixtureModels, LogitsLossGradientsAndGreedyTextAgree) {
  const std::string name = "models/" + GetParam() + "/expected";
  Fixture f(name);
  for (const DType dtype : {DType::f64, DType::f32}) {
    Model model(GetParam(), dtype);
    const Tensor ids = f.read("in.input_ids", dtype);
    const int64_t batch = ids.size(0), time = ids.size(1), vocabulary = model.transformer.config().vocab_size;

    Tape tape;
    Context context;
    const Tensor logits = model.transformer(ids, context);
    f.expect("out.logits", logits, dtype);
    // The target of each position is the next id; the last position has none.
    std::vector<double> targets;
    const auto flat = ids.values();
    for (int64_t i = 0; i < batch * time; ++i)
      targets.push_back(i % time == time - 1 ? -100 : flat[static_cast<size_t>(i) + 1]);
    const Tensor loss =
        cross_entropy(reshape(logits, {batch * time, vocabulary}),
                      tensor({batch * time}, targets, DType::i32));
    f.expect("out.loss", loss, dtype);
    tape.backward(loss);

    for (const StoredWeight& w : model.directory.weights()) {
      // The error is relative to the whole stored tensor, because the gradient of the key's bias alone is
      // rounding error.
      const Tensor whole = f.read("grad." + model.directory.stored_name(w), DType::f64),
          part = stored_part(whole, w);
      Parameter& p = model.transformer.parameter(w.path);
      EXPECT_EQ(p.grad.dtype(), dtype);
      EXPECT_LE(largest(sub(p.grad.to(DType::f64), part)) / largest(whole), tolerance_of(dtype))
          << p.path << " " << name_of(dtype);
      EXPECT_GT(p.contributions, 0) << p.path;
    }
    for (Parameter* p : model.transformer.parameters()) p->zero_gradient();

    const auto expected = f.read("out.greedy", dtype).values();
    const std::vector<double> start(flat.begin(), flat.begin() + 5);
    EXPECT_EQ(continue_greedily(model.transformer, start, expected.size()), expected);
    const std::vector<int32_t> cached =
        generate(model.transformer, {start.begin(), start.end()}, static_cast<int64_t>(expected.size() - 5),
                 {.temperature = 0});
    EXPECT_EQ(std::vector<double>(cached.begin(), cached.end()), expected);
  }
  expect_all_read(f, name);
}

// A table lists the weights of each kind of model; a stored tensor that it lacks would be lost.
TEST_P(FixtureModels, EveryStoredWeightIsLoaded) {
  const auto folder = fixtures() / "models" / GetParam();
  const SafetensorsFile file(folder / "model.safetensors");
  const HuggingFaceDirectory directory(folder);
  std::set<std::string> loaded;
  for (const StoredWeight& w : directory.weights()) loaded.insert(directory.stored_name(w));
  for (const std::string& name : file.names()) EXPECT_TRUE(loaded.count(name)) << name;
}

INSTANTIATE_TEST_SUITE_P(Kinds, FixtureModels, testing::Values("gpt2", "llama"),
                         [](const auto& kind) { return kind.param; });

}  // namespace
}  // namespace bonsai::test
