// Audits a config's model with initial weights: leaks depend only on the structure of the model.
#pragma once

#include "bonsai/framework/checks/audit.h"
#include "bonsai/layers/model/model.h"

namespace bonsai {

enum class AuditExtent {
  all,   // every position
  quick  // fewer positions and blocks, so that a run starts soon
};

// Audits the decoder for leaks and, if there is an encoder, also the encoder and the cross-attention. Checks
// that the feed-forward layer is position-wise, unless it is declared not to be. Checks that logits do not
// depend on how tokens are split into passes, so that text is the same with and without the key/value cache.
std::vector<AuditReport> audit_model(const std::string& name, ModelConfig config, DType dtype,
                                     AuditExtent extent, Device device = {});
bool passed(const std::vector<AuditReport>& reports);
std::string text(const std::vector<AuditReport>& reports);

}  // namespace bonsai
