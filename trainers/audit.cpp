#include "trainers/audit.h"

#include <algorithm>

namespace bonsai {

AuditReport audit_model(const std::string& name, DecoderConfig config, AuditExtent extent) {
  if (parameter_count(config) > kLargeModel) config.n_layers = 1;
  if (extent == AuditExtent::quick)
    config.n_layers = std::min<int64_t>(config.n_layers, 2);  // the others are like them
  config.vocab_size =
      std::min<int64_t>(config.vocab_size, 65);  // the head sees one position, whatever its width
  config.dropout = 0;
  config.deviation = DecoderConfig{}.deviation;
  Module root;
  Decoder decoder(&root, "", config);
  for (Parameter* p : decoder.parameters())
    p->trainable = false;  // only gradients of positions are asked for
  const AuditedFunction f = [&](const Tensor& x, const AuditConditions& conditions) {
    Context context;
    context.attend = conditions.attend, context.attention_scale = conditions.attention_scale;
    return decoder.head(decoder.trunk(x, context), context);
  };
  const int64_t time = config.block_size;
  // A pass over p positions computes p * time tokens.
  AuditOptions options;
  const int64_t tokens = extent == AuditExtent::all ? int64_t{1} << 18 : 4096;
  options.positions = std::clamp<int64_t>(tokens / time, 2, time);
  options.positions_scaled = std::min<int64_t>(extent == AuditExtent::all ? 64 : 8, options.positions);
  return leak_audit(name, f, time, config.d_model, DType::f32, options);
}

}  // namespace bonsai
