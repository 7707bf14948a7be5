// Leak audit: by exact zeros of the Jacobian, no output depends on an input that it may not see: one at a
// later position of a causal model, another row of the batch, padding, another document.
//
// Row b of one batch asks for the gradient of one of its outputs, so one backward pass shows what many
// positions depend on. A mask that adds -1e4 or -1e9 instead of -inf hides its leak in rounding while scores
// are small: the audit turns the attention scale up by 1e5 and 1e12, which out-shouts it. The lowest float
// hides even then, but not in a query that may see nothing at all: there, behind padding, it gives every key
// the same weight.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bonsai/framework/core/tensor.h"

namespace bonsai {

struct AuditConditions {
  double attention_scale = 1;    // times that of every attention
  // i32 (B,S): inputs that are 0 here are padding; undefined: there is none.
  Tensor padding_mask = {};
  Tensor segment_ids = {};         // i32 (B,S): the document of each input; undefined: all are one
  Tensor output_segment_ids = {};  // i32 (B,T): of each output, where outputs are not the inputs' own
};

// Embeddings (B,S,C) in, all on one device, outputs (B,T,any width) out, without randomness.
using AuditedFunction = std::function<Tensor(const Tensor& x, const AuditConditions& conditions)>;

struct AuditOptions {
  bool causal = true;              // an output sees no input after its own position
  int64_t outputs = 0;             // T, where outputs read the inputs as a source; 0: each is an input's own
  int64_t positions = 0;           // outputs that are asked for what they depend on, evenly spread; 0: all
  int64_t positions_further = 16;  // the same under each further condition
  bool sees_next = true;  // whether a position must depend on those beside it: not under a window of one
  bool attends = true;  // whether padding, documents and the attention scale must count
  int64_t tokens_at_once = 8192;  // of a batch, as memory allows
  uint64_t seed = 1;
  Device device = {};  // where the inputs and the conditions are made
};

struct AuditReport {
  std::string name;
  std::string checked;  // what was gone through, in a few words
  int64_t positions = 0, positions_further = 0;
  std::vector<std::string> leaks;    // "position 3 depends on position 5, which comes later"
  std::vector<std::string> missing;  // dependences that must exist: without them the zeros prove nothing
  std::vector<std::string> faults;   // what else is wrong
  bool passed() const { return leaks.empty() && faults.empty() && missing.empty() && positions > 0; }
  std::string text() const;  // at most 12 lines
};

// `time` is S, `width` C.
AuditReport leak_audit(const std::string& name, const AuditedFunction& f, int64_t time, int64_t width,
                       DType dtype = DType::f32, const AuditOptions& options = {});

// Whether a layer (B,T,width) -> (B,T,any width) is position-wise: no output depends on an input at another
// position. Each of so many passes asks for a random half of the outputs, then for the other half; it finds a
// dependence between two given positions with probability 1/2, and one between many for certain.
AuditReport position_wise_audit(const std::string& name, const AuditedFunction& f, int64_t time,
                                int64_t width, int64_t passes, DType dtype = DType::f32,
                                const AuditOptions& options = {});

}  // namespace bonsai
