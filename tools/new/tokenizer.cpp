// my_part: a tokenizer. `tokenizer: my_part` in a config's data section selects it.
//
// This one has a token per byte, without a vocabulary to learn. A tokenizer is made from the training text or
// from what serialise() gave, which a checkpoint holds. decode(encode(text)) must give the text.
#include "bonsai/data/tokenizer/tokenizer.h"

namespace bonsai {
namespace {

class MyPart final : public Tokenizer {
 public:
  // source.text is the training text; source.stored is the JSON of serialise(), if a checkpoint is read.
  MyPart(const TokenizerSource& /*source*/, NoKeys) {}

  int64_t vocab_size() const override { return 256; }
  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> ids;
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  std::string decode(std::span<const int32_t> ids) const override {
    check_ids("ids to decode", ids, vocab_size());
    std::string text;
    for (const int32_t id : ids) text += static_cast<char>(id);
    return text;
  }
  std::string serialise() const override { return nlohmann::json{{"kind", "my_part"}}.dump(); }
};

}  // namespace

void register_my_part() { add_part<TokenizerKind, MyPart>("my_part"); }

}  // namespace bonsai
