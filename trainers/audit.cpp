#include "trainers/audit.h"

#include <algorithm>

namespace bonsai {

AuditReport audit_model(const std::string& name, DecoderConfig config, DType dtype, AuditExtent extent) {
  if (parameter_count(config) > kLargeModel) config.n_layers = 1;
  if (extent == AuditExtent::quick)
    config.n_layers = std::min<int64_t>(config.n_layers, 2);  // the others are like them
  config.vocab_size =
      std::min<int64_t>(config.vocab_size, 65);  // the head sees one position, whatever its width
  config.deviation = DecoderConfig{}.deviation;  // weights of zero, or huge ones, would prove nothing
  Module root({.dtype = dtype});
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
  options.positions = std::min(time, std::max<int64_t>(8, tokens / time));
  options.positions_further = std::min<int64_t>(extent == AuditExtent::all ? 64 : 8, options.positions);
  options.sees_previous = config.window != 1;
  return leak_audit(name, f, time, config.d_model, dtype, options);
}

}  // namespace bonsai
