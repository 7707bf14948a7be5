// A model that writes: ids in, logits of the next id out. Trainers, audits, generation and checkpoints know it by this
// interface alone.
//
// A model of your own is one file. Its config has visit() for keys of its own and, if it needs them, `vocab_size` and
// `block_size`, which the run sets. Its class derives from Model and is made from (parent, name, config).
//
//   void register_lstm() { add_part<ModelKind, Lstm, LstmConfig>("lstm"); }
#pragma once

#include "bonsai/layers/registry.h"

namespace bonsai {

// What a run tells its model.
struct ModelContext {
  int64_t vocab_size = 1;   // V, the number of token ids
  int64_t block_size = 64;  // the longest sequence
};

class Model : public Layer {
 public:
  Model(Module* parent, std::string name, const ModelContext& context)
      : Layer(parent, std::move(name)), context_(context) {}
  int64_t vocab_size() const { return context_.vocab_size; }
  int64_t block_size() const { return context_.block_size; }

  // forward is these two in turn. The audit and the gradient check begin at the embeddings.
  virtual Tensor embed(const Tensor& ids, Context& context) = 0;         // i32 (B,T) -> (B,T,C)
  virtual Tensor from_embedding(const Tensor& x, Context& context) = 0;  // (B,T,C) -> (B,T,V)
  // The logits of the last position alone, (B,V): what generation needs.
  virtual Tensor last_logits(const Tensor& ids, Context& context);

  // Whether a KeyValueCache holds all that later tokens need. If not, generation passes all tokens every time.
  virtual bool cacheable() const { return false; }
  // Layers whose output at a position must depend on the input there alone for cacheable() to be true.
  virtual std::vector<Layer*> position_wise_layers() { return {}; }
  // Whether it has attention, which heeds context.padding_mask, segment_ids and attention_scale.
  virtual bool attends() const { return false; }
  // Whether a position sees those before it.
  virtual bool sees_earlier() const { return true; }

  // A model with an encoder reads context.source: encode makes its features (B,S,C) from its ids.
  virtual bool reads_source() const { return false; }
  virtual Tensor encode(Context& context);
  // The features that an encoder makes of embeddings: (B,S,C) -> (B,S,C).
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

  template <class Part, class Config>
  static std::unique_ptr<Model> make(Config c, Module* parent, std::string name, const ModelContext& context) {
    if constexpr (requires { c.vocab_size = context.vocab_size; }) c.vocab_size = context.vocab_size;
    if constexpr (requires { c.block_size = context.block_size; }) c.block_size = context.block_size;
    return std::make_unique<Part>(parent, std::move(name), c);
  }
};

// The model of a run, by name.
struct ModelConfig {
  int64_t vocab_size = 0;  // 0: that of the data
  int64_t block_size = 64;
  Choice<ModelKind> kind = {};

  ModelConfig() = default;
  // From the config of a class that is also built directly, such as TransformerConfig.
  template <class Config>
  explicit(false) ModelConfig(const Config& c)
      : vocab_size(c.vocab_size), block_size(c.block_size), kind(Keys<Config>{c}) {}

  template <class V>
  void visit(V& v) {
    v("vocab_size", vocab_size, "number of token ids; 0 in a run takes that of its data", at_least(0));
    v("block_size", block_size, "longest sequence", at_least(1));
    v.part(kind, "the architecture");
  }
  // Error if the vocabulary is not known.
  std::unique_ptr<Model> make(Module* parent, std::string name = "") const;
};

// Elements of all parameters, counted from their shapes: no memory is taken for them. A double, because a config may
// claim more than can be built.
double parameter_count(const ModelConfig& c);
constexpr double kLargeModel = 2e6;  // parameters: of a larger one, the checks build one block

// The same model with at most so many of the blocks that are alike.
ModelConfig shortened(ModelConfig c, int64_t max_layers);

}  // namespace bonsai
