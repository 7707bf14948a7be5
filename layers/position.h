// What tells a model where a token stands, added to the token's vector: learned or sinusoidal.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>

#include "bonsai/framework/config/visit.h"
#include "bonsai/framework/ops/axes.h"
#include "bonsai/framework/ops/ops.h"
#include "bonsai/layers/module.h"

namespace bonsai {

struct PositionConfig {
  int64_t block_size = 1;
  int64_t width = 1;
  double init_std = kInitStd;
  template <class V>
  void visit(V& v) {
    v("block_size", block_size, "number of positions", at_least(1));
    v("width", width, "width of a vector", at_least(1));
    v("init_std", init_std, "standard deviation of the first weights of learned positions", at_least(0));
  }
};

// Adds rows first_position, first_position + 1, ... of a table (block_size, width) to x (B,T,width).
class Positions : public Layer {
 public:
  Positions(Module* parent, std::string name, const PositionConfig& c)
      : Layer(parent, std::move(name)), block_size_(c.block_size) {
    check_config(path(), c);
  }

 protected:
  virtual const Tensor& table(int64_t rows) = 0;  // at least so many of it

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

class LearnedPositions final : public Positions {
 public:
  LearnedPositions(Module* parent, std::string name, const PositionConfig& c)
      : Positions(parent, std::move(name), c),
        weight(&add_parameter("weight", {c.block_size, c.width}, normal(c.init_std), Decay::yes)) {}

  Parameter* weight;  // (block_size, width)

 protected:
  const Tensor& table(int64_t) override { return weight->value; }
};

// Columns 2j and 2j+1 are sin and cos of position * 10000^(-2j / width).  Vaswani et al. 2017
// The table grows with the positions that are asked for: a config may claim any number of them.
class SinusoidalPositions final : public Positions {
 public:
  SinusoidalPositions(Module* parent, std::string name, const PositionConfig& c)
      : Positions(parent, std::move(name), c), config_(c) {}

 protected:
  const Tensor& table(int64_t rows) override {
    if (!table_ || table_.size(0) < rows) {
      const auto grown = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows)));
      table_ = made(std::min(config_.block_size, grown));
    }
    return table_;
  }

 private:
  Tensor made(int64_t rows) const {
    std::vector<double> values;
    for (int64_t t = 0; t < rows; ++t)
      for (int64_t i = 0; i < config_.width; ++i) {
        const double pair = static_cast<double>(i / 2 * 2);
        const double angle = static_cast<double>(t) * std::pow(10000.0, -pair / static_cast<double>(config_.width));
        values.push_back(i % 2 == 0 ? std::sin(angle) : std::cos(angle));
      }
    return tensor({rows, config_.width}, values, build().dtype, build().device);
  }

  PositionConfig config_;
  Tensor table_;
};

// The positions that a config names: "learned", "sinusoidal", or "none" for a null pointer.
inline std::unique_ptr<Layer> make_positions(Module* parent, std::string name, const std::string& kind,
                                             const PositionConfig& c) {
  if (kind == "learned") return std::make_unique<LearnedPositions>(parent, std::move(name), c);
  if (kind == "sinusoidal") return std::make_unique<SinusoidalPositions>(parent, std::move(name), c);
  check(kind == "none", "position", "there are no positions '{}'; use learned, sinusoidal or none", kind);
  return nullptr;
}

}  // namespace bonsai
