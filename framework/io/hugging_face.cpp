#include "bonsai/framework/io/hugging_face.h"

#include <set>

#include "bonsai/framework/core/quote.h"
#include "bonsai/framework/io/json_config.h"

namespace bonsai {

Tensor stored_part(const Tensor& stored, const StoredWeight& w) {
  const int64_t columns = stored.rank() > 0 ? stored.size(-1) : 1;
  check((stored.rank() == 1 || stored.rank() == 2) && columns % w.parts == 0, w.stored,
        "must be a vector or matrix with columns for {} equal parts, got {}", w.parts, stored);
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

namespace {

std::filesystem::path weights_file(const std::filesystem::path& directory) {
  const auto one = directory / "model.safetensors", parts = directory / "model.safetensors.index.json";
  check(std::filesystem::exists(one) || !std::filesystem::exists(parts), parts.string(),
        "lists weights in several files; Bonsai reads only a single model.safetensors");
  return one;
}

// Constant tables that the model computes itself; files of older versions contain them.
bool is_computed(const std::string& stored) {
  return stored.ends_with(".attn.bias") || stored.ends_with(".attn.masked_bias") ||
         stored.ends_with(".rotary_emb.inv_freq");
}

}  // namespace

HuggingFaceDirectory::HuggingFaceDirectory(const std::filesystem::path& directory)
    : file_(weights_file(directory)), path_((directory / "model.safetensors").string()) {
  const JsonConfig config(directory / "config.json");
  const std::string kind = config.get<std::string>("model_type", "gpt2");
  const auto check_layers = [&](const char* key, int64_t layers) {
    const auto tensors = static_cast<int64_t>(file_.names().size());
    check(layers <= tensors, config.path(), "{} is {}, but {} has {} tensors", key, layers, path_, tensors);
  };
  if (kind == "gpt2") {
    const Gpt2Settings settings = gpt2_settings(config);
    check_layers("n_layer", settings.n_layer);
    settings_ = settings, weights_ = gpt2_weights(settings), prefix_ = "transformer.";
  } else if (kind == "llama") {
    const LlamaSettings settings = llama_settings(config);
    check_layers("num_hidden_layers", settings.num_hidden_layers);
    settings_ = settings, weights_ = llama_weights(settings), prefix_ = "model.";
  } else {
    fail(config.path(), "model_type is '{}'; Bonsai reads gpt2 and llama", escaped(kind));
  }
  std::set<std::string> taken = {"lm_head.weight"};  // a copy of the token table if they are tied
  for (const StoredWeight& weight : weights_) {
    const std::string stored = stored_name(weight);
    check(file_.shape(stored) == weight.shape, config.path(),
          "describes tensor {} as {}, but {} has it as {}", stored, weight.shape, path_, file_.shape(stored));
    taken.insert(stored);
  }
  for (const std::string& stored : file_.names())
    check(taken.contains(stored) || is_computed(stored), path_,
          "tensor {} is not part of the model that config.json describes", in_quotes(stored));
}

std::string HuggingFaceDirectory::stored_name(const StoredWeight& weight) const {
  for (const std::string& prefix : {prefix_, std::string()})
    if (file_.contains(prefix + weight.stored)) return prefix + weight.stored;
  fail(path_, "has no tensor {}", weight.stored);
}

Tensor HuggingFaceDirectory::read(const StoredWeight& weight, DType as) const {
  return stored_part(file_.read(stored_name(weight), as), weight);
}

}  // namespace bonsai
