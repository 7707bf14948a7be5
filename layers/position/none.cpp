// No position embedding; only a causal mask tells positions apart.   Kazemnejad et al. 2023, arXiv:2305.19466
#include "bonsai/layers/registry.h"

namespace bonsai {
namespace {

class NoPosition final : public Position {
 public:
  NoPosition(Module* parent, std::string name, NoKeys) : Position(parent, std::move(name)) {}
};

}  // namespace

void register_none() { add_part<PositionKind, NoPosition>("none"); }

}  // namespace bonsai
