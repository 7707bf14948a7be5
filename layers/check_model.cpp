#include "bonsai/layers/check_model.h"

#include <algorithm>
#include <set>

namespace bonsai {
namespace {

// Records the arguments of the first call of each layer.
struct Calls final : LayerWatcher {
  struct Seen {
    Module* layer;
    std::vector<Tensor> inputs;
    Context context;
    Call call;

    DifferentiableFunction replay() const {
      return [context = context, call = call](const std::vector<Tensor>& in) {
        Context fresh = context;
        return call(in, fresh);
      };
    }
  };
  std::vector<Seen> seen;

  void called(Module& layer, const std::vector<Tensor>& inputs, const Context& context,
              const Call& call) override {
    if (std::any_of(seen.begin(), seen.end(), [&](const Seen& s) { return s.layer == &layer; })) return;
    Seen& s = seen.emplace_back(Seen{&layer, {}, context, call});
    for (const Tensor& x : inputs) s.inputs.push_back(x ? x.detach() : x);
    s.context.watcher = nullptr;
  }
};

constexpr int64_t kLongPass = 500000;  // parameters; a pass through more than these takes long

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
  std::string out =
      fmt::format("{} checks, {} failed: {} tensors, {} of {} elements one by one, {} directions\n",
                  reports.size() + !taylor.name.empty(), failed + (!taylor.name.empty() && !taylor.passed()),
                  tensors, checked, elements, directions);
  if (!in_directions_alone.empty())
    out += fmt::format("{} parameters only along directions, the first is {}\n", in_directions_alone.size(),
                       in_directions_alone.front());
  return out;
}

ModelCheck check_model(const std::string& name, Layer& model, const Tensor& x, const Context& context,
                       const ModelCheckOptions& options) {
  Calls calls;
  Context watched = context;
  watched.watcher = &calls;
  model(x, watched);

  ModelCheck all;
  std::set<const Parameter*> visited;
  int shown = 0;  // failures whose whole text was shown
  const auto show = [&](bool passed, const std::string& text) {
    if (options.progress)
      options.progress(passed || ++shown <= 2 ? text : text.substr(0, text.find('\n') + 1));
  };
  for (const Calls::Seen& seen : calls.seen) {
    Module& layer = *seen.layer;
    const bool whole = &layer == &model;
    if (!within(layer.path(), options.layer)) continue;
    // The layer's own parameters are checked element by element. Parameters of its children are checked along
    // directions here, and element by element when their layer is checked.
    const std::vector<Parameter*> own = layer.own_parameters();
    std::vector<Parameter*> below = layer.parameters();
    std::erase_if(below, [&](Parameter* p) { return std::find(own.begin(), own.end(), p) != own.end(); });
    visited.insert(own.begin(), own.end());
    // The elements of its inputs are also checked one by one, but fewer of them if a pass takes long.
    GradcheckOptions each = options.gradcheck;
    int64_t elements = 0;
    for (const Parameter* p : layer.parameters()) elements += p->value.elements();
    each.input_in_full = elements > kLongPass ? std::min<int64_t>(each.in_full, 1024) : each.in_full;
    const std::string title = whole ? name : layer.path();
    GradcheckReport report = gradcheck(title, seen.replay(), seen.inputs, own, each, below);
    if (report.ops.empty()) continue;  // dropout of nothing
    show(report.passed(), report.text());
    all.reports.push_back(std::move(report));
    if (!whole) continue;
    all.taylor = taylor(title, seen.replay(), seen.inputs, layer.parameters());
    show(all.taylor.passed(), all.taylor.text());
  }
  check(!all.reports.empty(), "gradcheck", "the model called no layer {} with anything to differentiate",
        options.layer);
  for (const Parameter* p : model.parameters())
    if (options.layer.empty() && !visited.contains(p)) all.in_directions_alone.push_back(p->path);
  return all;
}

}  // namespace bonsai
