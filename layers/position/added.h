// Base of position embeddings: rows of a table are added to token vectors.
#pragma once

#include "bonsai/framework/ops/axes.h"
#include "bonsai/framework/ops/ops.h"
#include "bonsai/layers/registry.h"

namespace bonsai {

struct PositionConfig {
  int64_t block_size = 1;
  int64_t width = 1;
  double init_std = kInitStd;
  template <class V>
  void visit(V& v) {
    v("block_size", block_size, "number of positions", at_least(1));
    v("width", width, "width of a vector", at_least(1));
    v("init_std", init_std, "standard deviation of the initial weights of learned positions", at_least(0));
  }
  template <class V>
  void visit_keys(V&) {}  // the model sets all of them
};

// Adds rows first_position, first_position + 1, ... of a table (block_size, width) to x (B,T,width).
class AddedPositions : public Position {
 public:
  AddedPositions(Module* parent, std::string name, const PositionConfig& c)
      : Position(parent, std::move(name)), block_size_(c.block_size) {
    check_config(path(), c);
  }
  bool is_added() const override { return true; }

 protected:
  virtual const Tensor& table(int64_t rows) = 0;  // a table with at least `rows` rows

  Tensor forward(const Tensor& x, Context& context) override {
    check_axes("position", "x", x, "(...,time,width)");
    const int64_t first = context.first_position, last = first + x.size(-2);
    check(first >= 0 && last <= block_size_, "position",
          "positions {} to {} are asked for, but block_size is {}", first, last - 1, block_size_);
    return add(x, slice(table(last), 0, first, last));
  }

 private:
  int64_t block_size_;
};

}  // namespace bonsai
