// Arbitrary bytes as a safetensors file: reads all of its tensors. Then as a checkpoint with a corrected
// checksum: builds its model and loads it.
#include <map>

#include "bonsai/framework/io/safetensors.h"
#include "bonsai/tests/fuzz/fuzz.h"
#include "bonsai/trainers/checkpoint.h"

using namespace bonsai;

namespace {

// The file with the checksum that its contents ask for; none where they are damaged in other ways.
std::string with_checksum(const fuzz::MemoryFile& file, std::string bytes) {
  const SafetensorsFile stored(file.path());
  std::map<std::string, Tensor> tensors;
  for (const std::string& name : stored.names()) tensors[name] = stored.read(name);
  const std::string sum = checkpoint_checksum(tensors, stored.metadata());
  const auto old = stored.metadata().find("checksum");
  if (old == stored.metadata().end() || old->second.size() != sum.size()) return bytes;
  if (const size_t at = bytes.find(old->second); at != bytes.npos) bytes.replace(at, sum.size(), sum);
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  fuzz::expect_value_or_error([&] {
    const fuzz::MemoryFile file(bytes), right(with_checksum(file, bytes));
    const Checkpoint checkpoint(right.path());
    Module root(checkpoint.build());
    checkpoint.load_model(*checkpoint.config().model.make(&root));
  });
  return 0;
}
