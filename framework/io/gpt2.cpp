#include "framework/io/gpt2.h"

#include <fstream>
#include <nlohmann/json.hpp>

namespace bonsai {
namespace {

// config.json with errors that name the file and the key.
class Config {
 public:
  explicit Config(const std::filesystem::path& path) : path_(path.string()) {
    std::ifstream file(path);
    check(file.good(), path_, "cannot be read; a Hugging Face directory has a config.json");
    json_ = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
    check(json_.is_object(), path_, "is not a JSON object");
  }

  template <class T>
  T get(const char* key, const T& otherwise) const {
    if (!json_.contains(key) || json_[key].is_null()) return otherwise;
    const nlohmann::json& value = json_[key];
    bool fits = value.is_number();
    if constexpr (std::is_same_v<T, bool>) fits = value.is_boolean();
    if constexpr (std::is_same_v<T, std::string>) fits = value.is_string();
    if constexpr (std::is_same_v<T, int64_t>) fits = value.is_number_integer();
    check(fits, path_, "{} has a value of the wrong type: {}", key, value.dump());
    return value.get<T>();
  }

  int64_t size(const char* key) const {
    const int64_t n = get<int64_t>(key, -1);
    check(n >= 1, path_, "{} is missing or less than 1", key);
    return n;
  }

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  nlohmann::json json_;
};

std::string activation_op(const Config& config) {
  const std::string name = config.get<std::string>("activation_function", "gelu_new");
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return "gelu_tanh";
  for (const char* same : {"gelu", "relu", "silu", "tanh"})
    if (name == same) return name;
  fail(config.path(), "activation_function '{}' is not one Bonsai has", name);
}

Gpt2Settings read_settings(const std::filesystem::path& directory) {
  const Config config(directory / "config.json");
  const std::string type = config.get<std::string>("model_type", "gpt2");
  check(type == "gpt2", config.path(), "model_type is '{}'; only gpt2 is read here", type);
  check(!config.get("scale_attn_by_inverse_layer_idx", false) && config.get("scale_attn_weights", true) &&
            !config.get("add_cross_attention", false),
        config.path(), "scales attention by the layer, not at all, or adds cross-attention, which Bonsai's decoder does not");
  return {.vocab_size = config.size("vocab_size"),
          .n_positions = config.size("n_positions"),
          .n_embd = config.size("n_embd"),
          .n_layer = config.size("n_layer"),
          .n_head = config.size("n_head"),
          .n_inner = config.get<int64_t>("n_inner", 0),
          .activation = activation_op(config),
          .layer_norm_epsilon = config.get("layer_norm_epsilon", 1e-5),
          .embd_pdrop = config.get("embd_pdrop", 0.1),
          .attn_pdrop = config.get("attn_pdrop", 0.1),
          .resid_pdrop = config.get("resid_pdrop", 0.1),
          .tied = config.get("tie_word_embeddings", true)};
}

}  // namespace

std::vector<Gpt2Weight> gpt2_weights(const Gpt2Settings& settings) {
  std::vector<Gpt2Weight> all = {{"wte.weight", "token.weight"}, {"wpe.weight", "position.weight"}};
  const auto pair = [&](const std::string& stored, const std::string& path, bool transposed, int part = 0, int parts = 1) {
    all.push_back({stored + ".weight", path + ".weight", transposed, part, parts});
    all.push_back({stored + ".bias", path + ".bias", false, part, parts});
  };
  for (int64_t i = 0; i < settings.n_layer; ++i) {
    const std::string from = "h." + std::to_string(i) + ".", to = "block." + std::to_string(i) + ".";
    pair(from + "ln_1", to + "norm_1", false);
    pair(from + "attn.c_attn", to + "attention.query", true, 0, 3);
    pair(from + "attn.c_attn", to + "attention.key", true, 1, 3);
    pair(from + "attn.c_attn", to + "attention.value", true, 2, 3);
    pair(from + "attn.c_proj", to + "attention.output", true);
    pair(from + "ln_2", to + "norm_2", false);
    pair(from + "mlp.c_fc", to + "mlp.up", true);
    pair(from + "mlp.c_proj", to + "mlp.down", true);
  }
  pair("ln_f", "norm", false);
  if (!settings.tied) all.push_back({"lm_head.weight", "head.weight"});
  return all;
}

Tensor gpt2_part(const Tensor& stored, const Gpt2Weight& w) {
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

Gpt2Directory::Gpt2Directory(const std::filesystem::path& directory)
    : settings_(read_settings(directory)), file_(directory / "model.safetensors") {
  weights_ = gpt2_weights(settings_);
  for (const Gpt2Weight& weight : weights_) stored_name(weight);
}

std::string Gpt2Directory::stored_name(const Gpt2Weight& weight) const {
  for (const char* prefix : {"transformer.", ""})
    if (file_.contains(prefix + weight.stored)) return prefix + weight.stored;
  fail("gpt2", "model.safetensors has no tensor {}", weight.stored);
}

Tensor Gpt2Directory::read(const Gpt2Weight& weight, DType as) const {
  return gpt2_part(file_.read(stored_name(weight), as), weight);
}

}  // namespace bonsai
