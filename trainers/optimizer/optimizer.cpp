#include "bonsai/trainers/optimizer/optimizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "bonsai/framework/autograd/dispatch.h"

namespace bonsai {
namespace {

// Number of elements reserved for a parameter in the flat tensor of a slot: a multiple of kAlignment, as in
// the arena.
int64_t room_of(const Shape& shape) {
  constexpr int64_t kAlignment = ParameterArena::kAlignment;
  return (shape.elements() + kAlignment - 1) / kAlignment * kAlignment;
}

struct Settings {
  double weight_decay, rate_scale;
};

Settings settings_of(const Parameter& p, const OptimizerConfig& config, const UpdateRule& rule) {
  Settings settings{p.decay ? rule.weight_decay() : 0, 1};
  for (const ParameterGroup& group : config.groups) {
    if (!matches(group.match, p.path)) continue;
    if (group.weight_decay >= 0) settings.weight_decay = group.weight_decay;
    settings.rate_scale = group.rate_scale;
    break;
  }
  return settings;
}

void check_groups(const OptimizerConfig& config, const std::vector<Parameter*>& parameters) {
  for (const ParameterGroup& group : config.groups)
    check(std::any_of(parameters.begin(), parameters.end(),
                      [&](const Parameter* p) { return matches(group.match, p->path); }),
          "optimizer", "no parameter matches '{}' of optimizer.groups; bonsai inspect lists the parameters",
          group.match);
}

// Extends `row` by the elements of `more`, which follow it in memory.
void append(UpdateTarget& row, const UpdateTarget& more) {
  const auto join = [](Tensor& a, const Tensor& b) { a = a.alias({a.elements() + b.elements()}); };
  join(row.values, more.values);
  join(row.gradients, more.gradients);
  for (size_t i = 0; i < row.slots.size(); ++i) join(row.slots[i], more.slots[i]);
}

}  // namespace

bool matches(const std::string& pattern, const std::string& text) {
  size_t p = 0, t = 0, star = std::string::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++, resume = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p, ++t;
    } else if (star != std::string::npos) {
      p = star + 1, t = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string::npos;
}

int64_t state_elements(const OptimizerConfig& config, const std::vector<Parameter*>& parameters) {
  const std::unique_ptr<UpdateRule> rule = config.kind.make();
  int64_t elements = 0;
  for (const Parameter* p : parameters)
    for (const Slot& slot : rule->slots(*p)) elements += slot.shape.elements();
  return elements;
}

Optimizer::Optimizer(ParameterArena& arena, const OptimizerConfig& config)
    : arena_(arena),
      config_(config),
      rule_(config.kind.make()),
      state_(empty({sizeof(kernel::StepState) / sizeof(int32_t)}, DType::i32, arena.values().device())) {
  const Tensor& values = arena.values();
  check(rule_->runs_on(values.device()), "optimizer", "{} has no kernel for a GPU; use --device cpu",
        config.kind.name());
  check_groups(config, arena.parameters());
  const kernel::StepState start;
  pool(state_.device()).memory().copy(on_device(), &start, sizeof start);

  std::map<std::string, int64_t> sizes;
  for (const Parameter* p : arena.parameters())
    for (const Slot& slot : rule_->slots(*p)) sizes[slot.name] += room_of(slot.shape);
  for (const auto& [name, size] : sizes) slots_[name] = zeros({size}, values.dtype(), values.device());
  std::map<std::string, int64_t> used;
  std::string row;  // settings and slots that the parameters of the last row of elements share
  for (Parameter* p : arena.parameters()) {
    UpdateTarget target = target_of(*p, used);
    std::string kind = fmt::format("{} {}", target.weight_decay, target.rate_scale);
    for (const Slot& slot : rule_->slots(*p)) kind += " " + slot.name;
    if (!rule_->elementwise(*p)) {
      parameters_.push_back(std::move(target));
      row.clear();
    } else if (kind == row) {
      append(elements_.back(), target);
    } else {
      elements_.push_back(std::move(target));
      row = kind;
    }
  }
}

// `used` has the number of elements of each slot that belong to earlier parameters.
UpdateTarget Optimizer::target_of(Parameter& p, std::map<std::string, int64_t>& used) {
  const Settings settings = settings_of(p, config_, *rule_);
  UpdateTarget target;
  target.weight_decay = settings.weight_decay, target.rate_scale = settings.rate_scale;
  const auto shape_of = [&](const Shape& shape) {
    return rule_->elementwise(p) ? Shape{room_of(shape)} : shape;
  };
  target.values = p.value.alias(shape_of(p.value.shape()));
  target.gradients = p.grad.alias(shape_of(p.value.shape()));
  for (const Slot& slot : rule_->slots(p)) {
    int64_t& at = used[slot.name];
    target.slots.push_back(slots_[slot.name].alias(shape_of(slot.shape), at));
    tensors_.emplace_back(config_.kind.name() + "." + slot.name + "." + p.path,
                          slots_[slot.name].alias(slot.shape, at));
    at += room_of(slot.shape);
  }
  return target;
}

void Optimizer::add_loss(const Tensor& sum, bool first) {
  kernels(sum).add_loss(view(sum), first, on_device());
}

kernel::StepState Optimizer::step(int64_t step, double learning_rate, int64_t tokens) {
  const KernelTable& k = kernels(arena_.values());
  const std::array<double, 2> by_step = rule_->by_step(step + 1);
  k.begin_update({.scale = tokens > 0 ? 1 / static_cast<double>(tokens) : 0,
                  .learning_rate = learning_rate,
                  .by_step = {by_step[0], by_step[1]}},
                 on_device());
  k.gradient_norm(view(arena_.gradients()), config_.clip_norm, on_device());
  for (UpdateTarget& target : elements_) rule_->update_elements(target, on_device());
  const kernel::StepState now = state();
  if (now.finite)
    for (UpdateTarget& target : parameters_) rule_->update_parameter(target, now);
  return now;
}

kernel::StepState Optimizer::state() const {
  kernel::StepState host;
  pool(state_.device()).memory().copy(&host, state_.data(), sizeof host);
  return host;
}

}  // namespace bonsai
