// GPT-2 as Hugging Face's transformers computes it, through the layers' own decoder.
#include "framework/ops/ops.h"
#include "layers/pretrained.h"
#include "tests/fixture.h"

namespace bonsai::test {
namespace {

struct Model {
  explicit Model(DType dtype) : directory(fixtures() / "models/gpt2"), root({.dtype = dtype}) {
    load_weights(directory, decoder);
  }
  Gpt2Directory directory;
  Module root;
  Decoder decoder{&root, "", decoder_config(directory.settings())};
};

double largest(const Tensor& x) {
  double most = 0;
  for (double v : x.values()) most = std::max(most, std::isnan(v) ? INFINITY : std::abs(v));
  return most;
}

// As transformers names it: everything but the head is below "transformer".
std::string stored_name(const Gpt2Weight& w) {
  return w.stored.starts_with("lm_head") ? w.stored : "transformer." + w.stored;
}

// The next id by the largest logit, over the whole sequence each time.
std::vector<double> continue_greedily(Decoder& decoder, std::vector<double> ids, size_t length) {
  while (ids.size() < length) {
    Context context;
    const auto logits = decoder(tensor({1, static_cast<int64_t>(ids.size())}, ids, DType::i32), context).values();
    const auto last = logits.end() - decoder.config().vocab_size;
    ids.push_back(static_cast<double>(std::max_element(last, logits.end()) - last));
  }
  return ids;
}

TEST(FixtureGpt2, LogitsLossGradientsAndGreedyTextAgree) {
  Fixture f("models/gpt2/expected");
  for (const DType dtype : {DType::f64, DType::f32}) {
    Model model(dtype);
    const Tensor ids = f.read("in.input_ids", dtype);
    const int64_t batch = ids.size(0), time = ids.size(1), vocabulary = model.decoder.config().vocab_size;

    Tape tape;
    Context context;
    const Tensor logits = model.decoder(ids, context);
    f.expect("out.logits", logits, dtype);
    // Each position predicts the next id; the last one has nothing to predict.
    std::vector<double> targets;
    const auto flat = ids.values();
    for (int64_t i = 0; i < batch * time; ++i)
      targets.push_back(i % time == time - 1 ? -100 : flat[static_cast<size_t>(i) + 1]);
    const Tensor loss = cross_entropy(reshape(logits, {batch * time, vocabulary}), tensor({batch * time}, targets, DType::i32));
    f.expect("out.loss", loss, dtype);
    tape.backward(loss);

    for (const Gpt2Weight& w : model.directory.weights()) {
      // The error is that of the stored tensor, of which this is a part: the key's bias has no effect
      // on a softmax, so its own gradient is rounding error.
      const Tensor whole = f.read("grad." + stored_name(w), DType::f64), part = gpt2_part(whole, w);
      Parameter& p = model.decoder.parameter(w.path);
      EXPECT_EQ(p.grad.dtype(), dtype);
      EXPECT_LE(largest(sub(p.grad.to(DType::f64), part)) / largest(whole), tolerance_of(dtype))
          << p.path << " " << name_of(dtype);
      EXPECT_GT(p.contributions, 0) << p.path;
    }
    for (Parameter* p : model.decoder.parameters()) p->zero_gradient();

    const auto expected = f.read("out.greedy", dtype).values();
    EXPECT_EQ(continue_greedily(model.decoder, {flat.begin(), flat.begin() + 5}, expected.size()), expected);
  }
  expect_all_read(f, "models/gpt2/expected");
}

// Weights are read through the table of gpt2_weights; a stored tensor outside it would be lost.
TEST(FixtureGpt2, EveryStoredWeightIsLoaded) {
  const SafetensorsFile file(fixtures() / "models/gpt2/model.safetensors");
  const Gpt2Directory directory(fixtures() / "models/gpt2");
  std::set<std::string> loaded;
  for (const Gpt2Weight& w : directory.weights()) loaded.insert(stored_name(w));
  for (const std::string& name : file.names()) EXPECT_TRUE(loaded.count(name)) << name;
}

}  // namespace
}  // namespace bonsai::test
