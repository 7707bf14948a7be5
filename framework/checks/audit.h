// Leak audit: checks that the Jacobian is exactly zero between an output and every input that the output may
// not depend on: later positions of a causal model, other rows of the batch, padding, other documents.
//
// Each row of a batch takes the gradient of another output, so that one backward pass shows what many
// positions depend on. A mask that adds -1e4 or -1e9 instead of -inf leaks less than rounding while scores
// are small. The audit therefore multiplies the attention scale by 1e5 and by 1e12, which makes scores exceed
// such a mask. A mask that adds the lowest float is found in queries whose keys are all padding: there it
// gives every key the same weight.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bonsai/framework/core/tensor.h"

namespace bonsai {

struct AuditConditions {
  double attention_scale = 1;      // multiplies the scale of every attention
  Tensor padding_mask = {};        // i32 (B,S): 0 marks padding; undefined: there is no padding
  Tensor segment_ids = {};         // i32 (B,S): the document of each input; undefined: a single document
  Tensor output_segment_ids = {};  // i32 (B,T): the document of each output, if the inputs are a source
};

// Maps embeddings (B,S,C) to outputs (B,T,any width) on the same device. Must not be random.
using AuditedFunction = std::function<Tensor(const Tensor& x, const AuditConditions& conditions)>;

struct AuditOptions {
  bool causal = true;              // an output must not depend on inputs after its own position
  int64_t outputs = 0;             // T, if the inputs are a source; 0: output t belongs to input t
  int64_t positions = 0;           // number of outputs to check, evenly spread; 0: all
  int64_t positions_further = 16;  // the same with padding, with documents and at larger attention scales
  bool sees_next = true;           // a position must depend on its neighbours; false for a window of 1
  bool attends = true;             // padding, documents and the attention scale must have an effect
  int64_t tokens_at_once = 8192;   // largest number of tokens per batch, which limits memory
  uint64_t seed = 1;
  Device device = {};  // of the inputs and the conditions
};

struct AuditReport {
  std::string name;
  std::string checked;  // summary of what was checked
  int64_t positions = 0, positions_further = 0;
  std::vector<std::string> leaks;    // "position 3 depends on position 5, which comes later"
  std::vector<std::string> missing;  // required dependences that were not found, so that zeros prove nothing
  std::vector<std::string> faults;   // other faults
  bool passed() const { return leaks.empty() && faults.empty() && missing.empty() && positions > 0; }
  std::string text() const;  // at most 12 lines
};

// Audits f on random embeddings; `time` is S and `width` is C.
AuditReport leak_audit(const std::string& name, const AuditedFunction& f, int64_t time, int64_t width,
                       DType dtype = DType::f32, const AuditOptions& options = {});

// Checks that a layer (B,T,width) -> (B,T,any width) is position-wise: no output depends on an input at
// another position. Each pass takes the gradient of a random half of the outputs, then of the other half. A
// pass finds a dependence between two given positions with probability 1/2, and one between many positions
// almost certainly.
AuditReport position_wise_audit(const std::string& name, const AuditedFunction& f, int64_t time,
                                int64_t width, int64_t passes, DType dtype = DType::f32,
                                const AuditOptions& options = {});

}  // namespace bonsai
