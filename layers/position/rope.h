// RoPE: pairs of a head's elements are rotated by angles proportional to the position, so that a score
// depends only on the distance of the positions.                       Su et al. 2021, arXiv:2104.09864
#pragma once

#include "bonsai/layers/registry.h"

namespace bonsai {

struct RopeConfig {
  double theta = 10000;
  template <class V>
  void visit(V& v) {
    v("theta", theta, "base of the rotation frequencies theta^(-2j/D)", between(1, 1e9));
  }
};
// Rotates the pairs (2j, 2j+1) instead of (j, j + D/2).
struct InterleavedRopeConfig : RopeConfig {};

class Rope final : public Position {
 public:
  Rope(Module* parent, std::string name, const RopeConfig& c) : Rope(parent, std::move(name), c, false) {}
  Rope(Module* parent, std::string name, const InterleavedRopeConfig& c)
      : Rope(parent, std::move(name), c, true) {}

  Tensor turned(const Tensor& x, int64_t n_heads, int64_t first) const override;

 private:
  Rope(Module* parent, std::string name, const RopeConfig& c, bool interleaved)
      : Position(parent, std::move(name)), theta_(c.theta), interleaved_(interleaved) {}

  double theta_;
  bool interleaved_;
};

}  // namespace bonsai
