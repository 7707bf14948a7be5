// Draws the inputs of op table rows, and reads reference cases.
#include <cmath>

#include "bonsai/framework/checks/op_cases.h"
#include "bonsai/framework/core/rng.h"

namespace bonsai {
namespace {

double draw(const Input& input, RandomKey key, uint64_t i) {
  const double normal = random_normal(key, i);
  switch (input.kind) {
    case Input::normal: return normal * input.scaled_by;
    case Input::positive: return (0.2 + std::abs(normal)) * input.scaled_by;
    case Input::nonzero: return std::copysign(0.2 + std::abs(normal), normal) * input.scaled_by;
    // Multiples of a step in a scrambled order, so that no two values are close.
    case Input::distinct: return (static_cast<double>(i * 7 % 31) - 11) * 0.3 * input.scaled_by;
    case Input::ids: return std::floor(random_uniform(key, i) * static_cast<double>(input.limit));
    case Input::flags: return random_uniform(key, i) < 0.6 ? 1 : 0;
  }
  return 0;
}

}  // namespace

std::vector<Tensor> make_inputs(const OpCase& row, DType dtype, uint64_t seed) {
  std::vector<Tensor> tensors;
  for (size_t k = 0; k < row.inputs.size(); ++k) {
    const Input& input = row.inputs[k];
    const RandomKey key = random_key(seed, row.name() + " input " + std::to_string(k));
    std::vector<double> values(static_cast<size_t>(input.shape.elements()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(draw(input, key, i));
    const bool whole = input.kind == Input::ids || input.kind == Input::flags;
    tensors.push_back(tensor(input.shape, values, whole ? DType::i32 : dtype));
  }
  return tensors;
}

const Tensor& ReferenceCase::operator[](const std::string& input) const {
  const auto at = inputs.find(input);
  check(at != inputs.end(), "reference", "the case has no input {}", input);
  return at->second;
}

std::string ReferenceCase::text(const std::string& setting, const std::string& otherwise) const {
  const auto at = settings.find(setting);
  return at == settings.end() ? otherwise : at->second;
}

double ReferenceCase::number(const std::string& setting, double otherwise) const {
  const auto at = settings.find(setting);
  return at == settings.end() ? otherwise : std::stod(at->second);
}

}  // namespace bonsai
