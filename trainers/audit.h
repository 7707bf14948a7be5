// The leak audit of a config's model, on fresh weights: what it may see depends on its structure alone.
#pragma once

#include "framework/checks/audit.h"
#include "layers/decoder.h"

namespace bonsai {

enum class AuditExtent {
  all,   // every position
  quick  // as many, and as many blocks, as keep the start of a run short
};

AuditReport audit_model(const std::string& name, DecoderConfig config, DType dtype, AuditExtent extent);

}  // namespace bonsai
