// A model maps token ids to logits of the next id. Trainers, audits, generation and checkpoints use only this
// interface.
//
// A new model is one file. Its config has visit() for its own keys and, if it needs them, `vocab_size` and
// `block_size`, which the run sets. Its class derives from Model and is made from (parent, name, config).
//
//   void register_lstm() { add_part<ModelKind, Lstm, LstmConfig>("lstm"); }
#pragma once

#include "bonsai/layers/registry.h"

namespace bonsai {

// Settings that a run gives to its model.
struct ModelContext {
  int64_t vocab_size = 1;   // V, the number of token ids
  int64_t block_size = 64;  // maximum sequence length in tokens
};

class Model : public Layer {
 public:
  Model(Module* parent, std::string name, const ModelContext& context)
      : Layer(parent, std::move(name)), context_(context) {}
  int64_t vocab_size() const { return context_.vocab_size; }
  int64_t block_size() const { return context_.block_size; }

  // forward calls these two in turn. Audit and gradient check start at the embeddings.
  virtual Tensor embed(const Tensor& ids, Context& context) = 0;         // i32 (B,T) -> (B,T,C)
  virtual Tensor from_embedding(const Tensor& x, Context& context) = 0;  // (B,T,C) -> (B,T,V)
  // Logits of the last position only, (B,V), for generation.
  virtual Tensor last_logits(const Tensor& ids, Context& context);

  // Whether the model can continue from a KeyValueCache. If not, generation computes all tokens every time.
  virtual bool cacheable() const { return false; }
  // Layers that must be position-wise for cacheable() to be true.
  virtual std::vector<Layer*> position_wise_layers() { return {}; }
  // Whether it has attention, which obeys context.padding_mask, segment_ids and attention_scale.
  virtual bool attends() const { return false; }
  // Whether an output depends on earlier positions.
  virtual bool sees_earlier() const { return true; }

  // Whether the model has an encoder, which reads context.source.
  virtual bool reads_source() const { return false; }
  // Returns the encoder's features (B,S,C) of context.source.ids.
  virtual Tensor encode(Context& context);
  // The same from embeddings: (B,S,C) -> (B,S,C).
  virtual Tensor encode_embedding(const Tensor& x, Context& context);

 protected:
  Tensor forward(const Tensor& ids, Context& context) override {
    return from_embedding(embed(ids, context), context);
  }

 private:
  ModelContext context_;
};

struct ModelKind {
  static constexpr const char *name = "model", *standard = "transformer";
  using Make = std::unique_ptr<Model>(Module* parent, std::string name, const ModelContext& context);
  static void register_all() { register_layer_parts(); }

  // Sets those keys of the config that the context knows, and makes the part.
  template <class Part, class Config>
  static std::unique_ptr<Model> make(Config c, Module* parent, std::string name,
                                     const ModelContext& context) {
    if constexpr (requires { c.vocab_size = context.vocab_size; }) c.vocab_size = context.vocab_size;
    if constexpr (requires { c.block_size = context.block_size; }) c.block_size = context.block_size;
    return std::make_unique<Part>(parent, std::move(name), c);
  }
};

// The section `model` of a run's config.
struct ModelConfig {
  int64_t vocab_size = 0;  // 0 chooses that of the data
  int64_t block_size = 64;
  Choice<ModelKind> kind = {};

  ModelConfig() = default;
  // Converts the config of a class that can also be built directly, such as TransformerConfig.
  template <class Config>
  explicit(false) ModelConfig(const Config& c)
      : vocab_size(c.vocab_size), block_size(c.block_size), kind(Keys<Config>{c}) {}

  template <class V>
  void visit(V& v) {
    v("vocab_size", vocab_size, "number of token ids; 0 chooses that of the data", at_least(0));
    v("block_size", block_size, "maximum sequence length in tokens", at_least(1));
    v.part(kind, "the architecture");
  }
  // Throws Error if vocab_size is 0.
  std::unique_ptr<Model> make(Module* parent, std::string name = "") const;
};

// Number of elements of all parameters, without allocating them. A double, because a config may ask for more
// than an int64_t can count.
double parameter_count(const ModelConfig& c);
constexpr double kLargeModel = 2e6;  // parameters; for a larger model, the checks build only one block

// The same model with at most max_layers blocks in the decoder and in the encoder.
ModelConfig shortened(ModelConfig c, int64_t max_layers);

}  // namespace bonsai
