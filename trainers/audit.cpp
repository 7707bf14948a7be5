#include "bonsai/trainers/audit.h"

#include <algorithm>
#include <cmath>

#include "bonsai/framework/backend/backend.h"
#include "bonsai/framework/core/rng.h"
#include "bonsai/framework/ops/ops.h"
#include "bonsai/layers/cache.h"
#include "bonsai/layers/model/transformer.h"

namespace bonsai {
namespace {

// Random vectors (rows,time,width), the same in every row, in place of embeddings or features.
Tensor stand_in(const Tensor& x, int64_t time, int64_t width) {
  const RandomKey key = random_key(1, "audit stand-in");
  std::vector<double> values;
  for (int64_t row = 0; row < x.size(0); ++row)
    for (int64_t i = 0; i < time * width; ++i) values.push_back(random_normal(key, static_cast<uint64_t>(i)));
  return tensor({x.size(0), time, width}, values, x.dtype(), x.device());
}

Context context_of(const AuditConditions& c) {
  return {.padding_mask = c.padding_mask, .segment_ids = c.segment_ids, .attention_scale = c.attention_scale};
}

Tensor some_ids(int64_t count, int64_t vocabulary, Device device) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i)
    ids.push_back(static_cast<int32_t>(random_uniform(random_key(1, "audit ids"), static_cast<uint64_t>(i)) *
                                       static_cast<double>(vocabulary)));
  return from<int32_t>({1, count}, ids, device);
}

// Width of the embeddings.
int64_t width_of(Model& model) {
  Context context;
  return model.embed(some_ids(1, model.vocab_size(), model.build().device), context).size(-1);
}

// Adds noise to constant parameters: a gate that starts at 0, for example, would hide leaks behind it.
void stir(Model& model) {
  for (Parameter* p : model.parameters()) {
    const std::vector<double> first = p->value.alias({std::min<int64_t>(2, p->value.elements())}).values();
    if (first.empty() || first.front() != first.back()) continue;
    std::vector<double> values = p->value.values();
    const RandomKey key = random_key(1, "audit " + p->path);
    for (size_t i = 0; i < values.size(); ++i) values[i] += kInitStd * random_normal(key, i);
    copy_into(tensor(p->value.shape(), values, p->value.dtype(), p->value.device()), p->value);
  }
}

// Audits the decoder and, if there is an encoder, the encoder and the decoder's cross-attention.
std::vector<AuditReport> audit_leaks(const std::string& name, Model& model, bool quick) {
  const bool encoder = model.reads_source();
  const int64_t time = model.block_size(), width = width_of(model);
  // Auditing p positions computes p * time tokens. Six positions are three patterns of hidden inputs, twice.
  AuditOptions options;
  const int64_t tokens = quick ? 4096 / (encoder ? 3 : 1) : int64_t{1} << 18;
  options.positions = std::min(time, std::max<int64_t>(6, tokens / time));
  options.positions_further = std::min<int64_t>(!quick ? 64 : encoder ? 6 : 8, options.positions);
  options.sees_next = model.sees_earlier(), options.attends = model.attends();
  options.device = model.build().device;
  std::vector<AuditReport> reports;
  const auto audit = [&](const std::string& part, const AuditedFunction& f) {
    reports.push_back(leak_audit(name + part, f, time, width, model.build().dtype, options));
  };

  audit("", [&](const Tensor& x, const AuditConditions& conditions) {
    Context context = context_of(conditions);
    if (encoder)
      context.source = {.features = stand_in(x, time, width), .segment_ids = conditions.segment_ids};
    return model.from_embedding(x, context);
  });
  if (!encoder) return reports;
  options.causal = false;
  audit(", its encoder", [&](const Tensor& x, const AuditConditions& conditions) {
    Context context = context_of(conditions);
    return model.encode_embedding(x, context);
  });
  options.outputs = time;
  audit(", what it sees of a source", [&](const Tensor& x, const AuditConditions& conditions) {
    Context context = context_of(conditions);
    const Tensor features = model.encode_embedding(x, context);
    context.padding_mask = {}, context.segment_ids = conditions.output_segment_ids;
    context.source = {.features = features,
                      .padding_mask = conditions.padding_mask,
                      .segment_ids = conditions.segment_ids};
    return model.from_embedding(stand_in(x, time, width), context);
  });
  return reports;
}

AuditReport audit_position_wise(const std::string& name, Layer& layer, Model& model, int64_t passes) {
  const auto f = [&](const Tensor& x, const AuditConditions& conditions) {
    Context context = context_of(conditions);
    return layer(x, context);
  };
  const Build& build = model.build();
  AuditReport report = position_wise_audit(name + ", " + layer.path() + " by itself", f, model.block_size(),
                                           width_of(model), passes, build.dtype, {.device = build.device});
  if (!report.faults.empty())
    report.faults.push_back(fmt::format(
        "if {} is meant to, declare `bool position_wise() const override {{ return false; }}` in its class: "
        "text is then generated without the key/value cache",
        layer.path()));
  return report;
}

double largest(const Tensor& x) {
  double most = 0;
  for (const double v : x.values()) most = std::isnan(v) ? INFINITY : std::max(most, std::abs(v));
  return most;
}

// Compares the logits of passes over one and five tokens, as in generation, with those of one pass over all.
AuditReport audit_passes(const std::string& name, Model& model) {
  const int64_t tokens = std::min<int64_t>(8, model.block_size());
  const Tensor ids = some_ids(tokens, model.vocab_size(), model.build().device);
  Context start;
  if (model.reads_source()) start.source.ids = ids, start.source.features = model.encode(start);
  const auto pass = [&](Context context, int64_t end) {
    return model(slice(ids, 1, context.first_position, end), context);
  };
  const Tensor whole = pass(start, tokens);

  AuditReport report;
  report.name = name + fmt::format(", passes {} the key/value cache", model.cacheable() ? "with" : "without");
  report.checked = fmt::format("{} tokens, one and five per pass", tokens), report.positions = tokens;
  const double scale = largest(whole), most = model.build().dtype == DType::f64 ? 1e-9 : 1e-4;
  if (scale == 0 || !std::isfinite(scale)) report.missing.push_back("the logits are all 0, or not finite");
  for (const int64_t piece : {1, 5}) {
    KeyValueCache cache(tokens);
    for (int64_t at = 0, end = 0; at < tokens; at = end) {
      end = std::min(tokens, at + piece);
      Context context = start;
      if (model.cacheable()) context.cache = &cache, context.first_position = at;
      const Tensor all = pass(context, end), last = slice(all, 1, all.size(1) - (end - at), all.size(1));
      const double error = largest(sub(last, slice(whole, 1, at, end))) / scale;
      if (error <= most) continue;
      report.faults.push_back(fmt::format(
          "in passes of {}, the logits of the tokens from position {} on differ by {:.1g} of the largest",
          piece, at, error));
      break;
    }
  }
  if (!report.faults.empty())
    report.faults.push_back(
        "a layer must count positions from context.first_position, and may not depend on how many tokens a "
        "pass has");
  return report;
}

}  // namespace

std::vector<AuditReport> audit_model(const std::string& name, ModelConfig config, DType dtype,
                                     AuditExtent extent, Device device) {
  const auto* keys = config.kind.find<TransformerKeys>();
  const bool quick = extent == AuditExtent::quick, encoder = keys && keys->n_encoder_layers > 0;
  if (parameter_count(config) > kLargeModel) config = shortened(config, 1);
  if (quick) config = shortened(config, encoder ? 1 : 2);  // further blocks have the same structure
  config.vocab_size = std::min<int64_t>(config.vocab_size, 65);  // the head is position-wise at any size
  if (config.kind.find<TransformerKeys>())
    transformer(config).init_std = kInitStd;  // zero or huge weights would hide leaks
  open_device(device);
  Module root({.dtype = dtype, .device = device});
  const std::unique_ptr<Model> model = config.make(&root);
  for (Parameter* p : model->parameters()) p->trainable = false;  // needs only gradients of inputs
  stir(*model);

  std::vector<AuditReport> reports = audit_leaks(name, *model, quick);
  if (model->cacheable())
    for (Layer* layer : model->position_wise_layers())
      reports.push_back(audit_position_wise(name, *layer, *model, quick ? 1 : 16));
  reports.push_back(audit_passes(name, *model));
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
