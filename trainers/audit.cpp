#include "trainers/audit.h"

#include <algorithm>

#include "framework/backend/backend.h"
#include "framework/core/rng.h"

namespace bonsai {
namespace {

// Some vectors (rows,time,width), the same in every row.
Tensor stand_in(const Tensor& x, int64_t time, int64_t width) {
  const RandomKey key = random_key(1, "audit stand-in");
  std::vector<double> values;
  for (int64_t row = 0; row < x.size(0); ++row)
    for (int64_t i = 0; i < time * width; ++i) values.push_back(random_normal(key, static_cast<uint64_t>(i)));
  return tensor({x.size(0), time, width}, values, x.dtype(), x.device());
}

Context context_of(const AuditConditions& c) {
  return {.attend = c.attend, .documents = c.documents, .attention_scale = c.attention_scale};
}

}  // namespace

std::vector<AuditReport> audit_model(const std::string& name, DecoderConfig config, DType dtype,
                                     AuditExtent extent, Device device) {
  int64_t most_layers = std::max(config.n_layers, config.n_encoder_layers);
  if (parameter_count(config) > kLargeModel) most_layers = 1;
  const bool quick = extent == AuditExtent::quick, encoder = config.n_encoder_layers > 0;
  if (quick) most_layers = std::min<int64_t>(most_layers, encoder ? 1 : 2);  // the others are like them
  config.n_layers = std::min(config.n_layers, most_layers);
  config.n_encoder_layers = std::min(config.n_encoder_layers, most_layers);
  config.vocab_size =
      std::min<int64_t>(config.vocab_size, 65);  // the head sees one position, whatever its width
  config.deviation = DecoderConfig{}.deviation;  // weights of zero, or huge ones, would prove nothing
  open_device(device);
  Module root({.dtype = dtype, .device = device});
  Decoder decoder(&root, "", config);
  for (Parameter* p : decoder.parameters())
    p->trainable = false;  // only gradients of positions are asked for

  const int64_t time = config.block_size, width = config.d_model;
  // A pass over p positions computes p * time tokens. Six are three patterns of hidden inputs, twice.
  AuditOptions options;
  const int64_t tokens = quick ? 4096 / (encoder ? 3 : 1) : int64_t{1} << 18;
  options.positions = std::min(time, std::max<int64_t>(6, tokens / time));
  options.positions_further = std::min<int64_t>(!quick ? 64 : encoder ? 6 : 8, options.positions);
  options.sees_next = config.window != 1;
  options.device = device;
  std::vector<AuditReport> reports;
  const auto audit = [&](const std::string& part, const AuditedFunction& f) {
    reports.push_back(leak_audit(name + part, f, time, width, dtype, options));
  };

  audit("", [&](const Tensor& x, const AuditConditions& conditions) {
    Context context = context_of(conditions);
    if (encoder) context.source = {.features = stand_in(x, time, width), .documents = conditions.documents};
    return decoder.head(decoder.trunk(x, context), context);
  });
  if (!encoder) return reports;
  options.causal = false;
  audit(", its encoder", [&](const Tensor& x, const AuditConditions& conditions) {
    Context context = context_of(conditions);
    return decoder.encoder->trunk(x, context);
  });
  options.outputs = time;
  audit(", what it sees of a source", [&](const Tensor& x, const AuditConditions& conditions) {
    Context context = context_of(conditions);
    const Tensor features = decoder.encoder->trunk(x, context);
    context.attend = {}, context.documents = conditions.output_documents;
    context.source = {.features = features, .attend = conditions.attend, .documents = conditions.documents};
    return decoder.head(decoder.trunk(stand_in(x, time, width), context), context);
  });
  return reports;
}

bool passed(const std::vector<AuditReport>& reports) {
  return std::all_of(reports.begin(), reports.end(), [](const AuditReport& r) { return r.passed(); });
}

std::string text(const std::vector<AuditReport>& reports) {
  std::string all;
  for (const AuditReport& r : reports) all += r.text();
  return all;
}

}  // namespace bonsai
