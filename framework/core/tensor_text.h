// A tensor's values as text, laid out as NumPy does:
//
//   puts(text(x).c_str());
//   -> f32(2,3)
//      [[ 1.   2.5  3. ]
//       [-4.   nan  6. ]]
#pragma once

#include "bonsai/framework/core/tensor.h"

namespace bonsai {

struct TextOptions {
  int precision = 4;         // most digits after the point
  int64_t threshold = 1000;  // of more elements, only the edges of each axis are shown,
  int64_t edge_items = 3;    // so many at either end
  int64_t line_width = 75;   // characters, after which a row goes on in the next line
};

// Name, dtype and shape, then the values. Scientific where the finite values that are shown need it: one is at least 1e8,
// one below 1e-4, or one 1000 times another.
std::string text(const Tensor& x, const TextOptions& options = {});

}  // namespace bonsai
