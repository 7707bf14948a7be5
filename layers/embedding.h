// A table with one vector per id.
#pragma once

#include "bonsai/framework/config/visit.h"
#include "bonsai/framework/ops/ops.h"
#include "bonsai/layers/module.h"

namespace bonsai {

struct EmbeddingConfig {
  int64_t entries = 1;
  int64_t width = 1;
  double init_std = kInitStd;
  template <class V>
  void visit(V& v) {
    v("entries", entries, "number of ids", at_least(1));
    v("width", width, "width of a vector", at_least(1));
    v("init_std", init_std, "standard deviation of the initial weights", at_least(0));
  }
};

class Embedding final : public Layer {
 public:
  Embedding(Module* parent, std::string name, const EmbeddingConfig& c) : Layer(parent, std::move(name)) {
    check_config(path(), c);
    weight = &add_parameter("weight", {c.entries, c.width}, normal(c.init_std), Decay::yes);
  }

  Parameter* weight = nullptr;  // (entries, width)

 protected:
  Tensor forward(const Tensor& ids, Context&) override {  // i32 (...) -> (...,width)
    return embedding(weight->value, ids);
  }
};

}  // namespace bonsai
