// The leak audit of a config's model, on fresh weights: what it may see depends on its structure alone.
#pragma once

#include "framework/checks/audit.h"
#include "layers/decoder.h"

namespace bonsai {

enum class AuditExtent {
  all,   // every position
  quick  // as many, and as many blocks, as keep the start of a run short
};

// The decoder's; with an encoder also the encoder's, and what the decoder sees of the source.
std::vector<AuditReport> audit_model(const std::string& name, DecoderConfig config, DType dtype,
                                     AuditExtent extent, Device device = {});
bool passed(const std::vector<AuditReport>& reports);
std::string text(const std::vector<AuditReport>& reports);

}  // namespace bonsai
