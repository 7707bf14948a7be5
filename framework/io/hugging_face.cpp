#include "framework/io/hugging_face.h"

#include "framework/io/json_config.h"

namespace bonsai {

Tensor stored_part(const Tensor& stored, const StoredWeight& w) {
  const int64_t columns = stored.rank() > 0 ? stored.size(-1) : 1;
  check((stored.rank() == 1 || stored.rank() == 2) && columns % w.parts == 0, w.stored,
        "{} cannot be cut into {} parts", stored, w.parts);
  if (!w.transposed && w.parts == 1) return stored;
  const int64_t rows = stored.shape().rows(), width = columns / w.parts, first = w.part * width;
  Tensor out = empty(stored.rank() == 1 ? Shape{width} : Shape{width, rows}, stored.dtype());
  const auto copy = [&]<class T>(T) {
    const auto from = stored.span<T>();
    auto to = out.mutable_span<T>();
    for (int64_t c = 0; c < width; ++c)
      for (int64_t r = 0; r < rows; ++r)
        to[static_cast<size_t>(c * rows + r)] = from[static_cast<size_t>(r * columns + first + c)];
  };
  stored.dtype() == DType::f64 ? copy(double{}) : copy(float{});
  return out;
}

HuggingFaceDirectory::HuggingFaceDirectory(const std::filesystem::path& directory)
    : file_(directory / "model.safetensors") {
  const JsonConfig config(directory / "config.json");
  const std::string kind = config.get<std::string>("model_type", "gpt2");
  if (kind == "gpt2") {
    const Gpt2Settings settings = gpt2_settings(config);
    settings_ = settings, weights_ = gpt2_weights(settings), prefix_ = "transformer.";
  } else if (kind == "llama") {
    const LlamaSettings settings = llama_settings(config);
    settings_ = settings, weights_ = llama_weights(settings), prefix_ = "model.";
  } else {
    fail(config.path(), "model_type is '{}'; gpt2 and llama are read", kind);
  }
  for (const StoredWeight& weight : weights_) stored_name(weight);
}

std::string HuggingFaceDirectory::stored_name(const StoredWeight& weight) const {
  for (const std::string& prefix : {prefix_, std::string()})
    if (file_.contains(prefix + weight.stored)) return prefix + weight.stored;
  fail("hugging_face", "model.safetensors has no tensor {}", weight.stored);
}

Tensor HuggingFaceDirectory::read(const StoredWeight& weight, DType as) const {
  return stored_part(file_.read(stored_name(weight), as), weight);
}

}  // namespace bonsai
