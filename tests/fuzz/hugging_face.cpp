// A config.json up to the first zero byte, model.safetensors after it: the model is built and loaded.
#include <filesystem>
#include <fstream>

#include "bonsai/layers/pretrained.h"
#include "bonsai/tests/folder.h"
#include "bonsai/tests/fuzz/fuzz.h"

using namespace bonsai;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const test::Folder folder;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const size_t zero = std::min(bytes.find('\0'), bytes.size());
  std::ofstream(folder / "config.json", std::ios::binary) << bytes.substr(0, zero);
  std::ofstream(folder / "model.safetensors", std::ios::binary)
      << bytes.substr(std::min(zero + 1, bytes.size()));
  fuzz::expect_value_or_error([&] {
    const HuggingFaceDirectory directory(folder.path());
    Module root;
    Transformer transformer{&root, "", transformer_config(directory)};
    load_weights(directory, transformer);
  });
  return 0;
}
