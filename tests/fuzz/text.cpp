// Arbitrary bytes as a text file, converted to tokens and back to the same bytes; and as a stored tokenizer.
#include "bonsai/data/text.h"
#include "bonsai/data/tokenizer/char.h"
#include "bonsai/tests/fuzz/fuzz.h"

using namespace bonsai;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  fuzz::expect_value_or_error([&] {
    const fuzz::MemoryFile file(bytes);
    const std::string text = read_text(file.path());
    const CharTokenizer tokenizer(text);
    const std::vector<int32_t> ids = tokenizer.encode(text);
    if (text != bytes || tokenizer.decode(ids) != text) std::abort();
    const auto again = Tokenizer::from_serialised(tokenizer.serialise());
    if (again->encode(text) != ids) std::abort();
    const Split split = split_tokens(ids, 0.3);
    if (split.train.size() + split.validation.size() != ids.size()) std::abort();
  });
  fuzz::expect_value_or_error([&] {
    const auto tokenizer = Tokenizer::from_serialised(bytes);
    if (tokenizer->serialise() != Tokenizer::from_serialised(tokenizer->serialise())->serialise())
      std::abort();
    tokenizer->encode(bytes);
  });
  return 0;
}
