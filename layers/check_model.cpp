#include "layers/check_model.h"

#include <algorithm>

namespace bonsai {
namespace {

// What each layer was called with, the first time.
struct Calls final : LayerWatcher {
  struct Call {
    Layer* layer;
    Tensor x;
    Context context;
  };
  std::vector<Call> calls;

  void called(Layer& layer, const Tensor& x, const Context& context) override {
    if (std::any_of(calls.begin(), calls.end(), [&](const Call& c) { return c.layer == &layer; })) return;
    Context replay = context;
    replay.watcher = nullptr;
    calls.push_back({&layer, x.detach(), replay});
  }
};

DifferentiableFunction replay(Layer& layer, const Context& context) {
  return [&layer, context](const std::vector<Tensor>& in) {
    Context fresh = context;
    return layer(in[0], fresh);
  };
}

constexpr int64_t kLongPass = 500000;  // parameters

bool within(const std::string& path, const std::string& layer) {
  return layer.empty() || path == layer || path.starts_with(layer + ".");
}

}  // namespace

bool ModelCheck::passed() const {
  return !reports.empty() &&
         std::all_of(reports.begin(), reports.end(), [](const auto& r) { return r.passed(); }) &&
         (taylor.name.empty() || taylor.passed());
}

std::string ModelCheck::text() const {
  int64_t tensors = 0, checked = 0, elements = 0, directions = 0, failed = 0;
  for (const GradcheckReport& r : reports) {
    failed += !r.passed();
    for (const GradcheckTensor& t : r.tensors)
      ++tensors, checked += t.checked, elements += t.checked > 0 ? t.elements : 0, directions += t.directions;
  }
  return fmt::format("{} checks, {} failed: {} tensors, {} of {} elements one by one, {} directions\n",
                     reports.size() + !taylor.name.empty(),
                     failed + (!taylor.name.empty() && !taylor.passed()), tensors, checked, elements,
                     directions);
}

ModelCheck check_model(const std::string& name, Layer& model, const Tensor& x, const Context& context,
                       const ModelCheckOptions& options) {
  Calls seen;
  Context watched = context;
  watched.watcher = &seen;
  model(x, watched);

  ModelCheck all;
  const auto show = [&](const std::string& text) {
    if (options.progress) options.progress(text);
  };
  for (const Calls::Call& call : seen.calls) {
    Layer& layer = *call.layer;
    const bool whole = &layer == &model;
    if (whole ? !options.layer.empty() : !within(layer.path(), options.layer)) continue;
    // A layer's own parameters are gone through one by one, those of the layers in it when their turn comes.
    const std::vector<Parameter*> own = layer.own_parameters();
    std::vector<Parameter*> below = layer.parameters();
    std::erase_if(below, [&](Parameter* p) { return std::find(own.begin(), own.end(), p) != own.end(); });
    // So are the elements of its input, where a pass through it is not too long for that.
    GradcheckOptions each = options.gradcheck;
    int64_t elements = 0;
    for (const Parameter* p : layer.parameters()) elements += p->value.elements();
    if (elements > kLongPass) each.input_in_full = std::min<int64_t>(each.input_in_full, 1024);
    const std::string title = whole ? name : layer.path();
    all.reports.push_back(gradcheck(title, replay(layer, call.context), {call.x}, own, each, below));
    show(all.reports.back().text());
    if (!whole) continue;
    all.taylor = taylor(title, replay(layer, call.context), {call.x}, layer.parameters());
    show(all.taylor.text());
  }
  check(!all.reports.empty(), "gradcheck", "there is no layer {} in the model", options.layer);
  return all;
}

}  // namespace bonsai
