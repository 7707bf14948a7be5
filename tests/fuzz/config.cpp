// Arbitrary bytes as the YAML of a run, with every check before data is read: ranges, consistency, sizes. The
// config is printed and loaded again.
#include "bonsai/framework/config/print.h"
#include "bonsai/framework/config/yaml.h"
#include "bonsai/tests/fuzz/fuzz.h"
#include "bonsai/trainers/config.h"

using namespace bonsai;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::expect_value_or_error([&] {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    RunConfig config = ConfigFile::from_text(text, "fuzz.yaml").load<RunConfig>();
    if (config.model.vocab_size == 0) config.model.vocab_size = 1;
    parameter_count(config.model);
    const std::string printed = dump_config(config_keys(config));
    RunConfig again = ConfigFile::from_text(printed, "again.yaml").load<RunConfig>();
    if (dump_config(config_keys(again)) != printed) std::abort();
  });
  return 0;
}
