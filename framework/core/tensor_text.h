// Formats a tensor's values as NumPy does:
//
//   puts(text(x).c_str());
//   -> f32(2,3)
//      [[ 1.   2.5  3. ]
//       [-4.   nan  6. ]]
#pragma once

#include "bonsai/framework/core/tensor.h"

namespace bonsai {

struct TextOptions {
  int precision = 4;         // maximum number of digits after the point
  int64_t threshold = 1000;  // a tensor with more elements shows only the ends of each axis,
  int64_t edge_items = 3;    // this many items at each end
  int64_t line_width = 75;   // in characters; longer rows are wrapped
};

// Name, dtype and shape, then the values. The notation is scientific if, among the finite nonzero values
// shown, the largest magnitude is at least 1e8, the smallest is below 1e-4, or their ratio exceeds 1000.
std::string text(const Tensor& x, const TextOptions& options = {});

}  // namespace bonsai
