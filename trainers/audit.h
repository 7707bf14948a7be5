// The audit of a config's model, on fresh weights: what it may see depends on its structure alone.
#pragma once

#include "bonsai/framework/checks/audit.h"
#include "bonsai/layers/model/model.h"

namespace bonsai {

enum class AuditExtent {
  all,   // every position
  quick  // as many, and as many blocks, as keep the start of a run short
};

// Leaks of the decoder; with an encoder also of the encoder and of what the decoder sees of the source. Then
// whether the feed-forward layer is position-wise, unless it is declared not to be, and whether logits do not
// depend on how the tokens are split into passes: text is the same with the key/value cache and without.
std::vector<AuditReport> audit_model(const std::string& name, ModelConfig config, DType dtype,
                                     AuditExtent extent, Device device = {});
bool passed(const std::vector<AuditReport>& reports);
std::string text(const std::vector<AuditReport>& reports);

}  // namespace bonsai
