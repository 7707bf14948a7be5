// GPT-2 and Llama directories as different versions of transformers write them: each is read correctly, or
// rejected with an error that names the file and the key.
#include "bonsai/framework/io/hugging_face.h"

#include <sys/stat.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "bonsai/framework/ops/ops.h"
#include "bonsai/layers/feed_forward/feed_forward.h"
#include "bonsai/layers/position/rope.h"
#include "bonsai/layers/pretrained.h"
#include "bonsai/tests/folder.h"
#include "bonsai/tests/support.h"

namespace bonsai::test {
namespace {

using nlohmann::json;
using Shapes = std::map<std::string, Shape>;

// A directory that tests change and read again.
struct Directory {
  Directory(json settings, const json& change, const Shapes& shapes) : config(std::move(settings)) {
    config.update(change);
    for (const auto& [name, shape] : shapes)
      tensors.emplace(name, random_tensor(shape, DType::f32, tensors.size()));
  }
  HuggingFaceDirectory open() const {
    std::ofstream(folder / "config.json") << config;
    write_safetensors(folder / "model.safetensors", {tensors.begin(), tensors.end()});
    return HuggingFaceDirectory(folder.path());
  }
  TransformerConfig described() const { return transformer_config(open()); }
  Tensor logits() const {
    const HuggingFaceDirectory directory = open();
    Module root({.dtype = DType::f64});
    Transformer transformer{&root, "", transformer_config(directory)};
    load_weights(directory, transformer);
    Context context;
    return transformer(tensor({1, 5}, {1, 9, 0, 4, 4}, DType::i32), context);
  }
  void expect_refused(const std::vector<std::string>& words, const std::string& file = "config.json") const {
    const std::string error = error_of([&] { logits(); });
    for (const std::string& word : words)
      EXPECT_NE(error.find(word), std::string::npos) << word << " is not in: " << error;
    EXPECT_NE(error.find((folder / file).string()), std::string::npos) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }

  Folder folder;
  json config;
  std::map<std::string, Tensor> tensors;
};

Directory llama(const json& change = json::object()) {
  return {{{"model_type", "llama"},
           {"vocab_size", 10},
           {"max_position_embeddings", 16},
           {"hidden_size", 8},
           {"intermediate_size", 12},
           {"num_hidden_layers", 1},
           {"num_attention_heads", 2},
           {"num_key_value_heads", 1}},
          change,
          {{"model.embed_tokens.weight", {10, 8}},
           {"model.layers.0.input_layernorm.weight", {8}},
           {"model.layers.0.self_attn.q_proj.weight", {8, 8}},
           {"model.layers.0.self_attn.k_proj.weight", {4, 8}},
           {"model.layers.0.self_attn.v_proj.weight", {4, 8}},
           {"model.layers.0.self_attn.o_proj.weight", {8, 8}},
           {"model.layers.0.post_attention_layernorm.weight", {8}},
           {"model.layers.0.mlp.gate_proj.weight", {12, 8}},
           {"model.layers.0.mlp.up_proj.weight", {12, 8}},
           {"model.layers.0.mlp.down_proj.weight", {8, 12}},
           {"model.norm.weight", {8}},
           {"lm_head.weight", {10, 8}}}};
}

Directory gpt2(const json& change = json::object(), int64_t inner = 32) {
  return {{{"model_type", "gpt2"},
           {"vocab_size", 10},
           {"n_positions", 16},
           {"n_embd", 8},
           {"n_layer", 1},
           {"n_head", 2}},
          change,
          {{"transformer.wte.weight", {10, 8}},
           {"transformer.wpe.weight", {16, 8}},
           {"transformer.h.0.ln_1.weight", {8}},
           {"transformer.h.0.ln_1.bias", {8}},
           {"transformer.h.0.attn.c_attn.weight", {8, 24}},
           {"transformer.h.0.attn.c_attn.bias", {24}},
           {"transformer.h.0.attn.c_proj.weight", {8, 8}},
           {"transformer.h.0.attn.c_proj.bias", {8}},
           {"transformer.h.0.ln_2.weight", {8}},
           {"transformer.h.0.ln_2.bias", {8}},
           {"transformer.h.0.mlp.c_fc.weight", {8, inner}},
           {"transformer.h.0.mlp.c_fc.bias", {inner}},
           {"transformer.h.0.mlp.c_proj.weight", {inner, 8}},
           {"transformer.h.0.mlp.c_proj.bias", {8}},
           {"transformer.ln_f.weight", {8}},
           {"transformer.ln_f.bias", {8}}}};
}

TEST(Llama, TheRotaryBaseIsReadWhereEveryVersionKeepsIt) {
  const std::vector<std::pair<json, double>> cases = {
      {json::object(), 10000},
      {{{"rope_theta", 5e5}}, 5e5},
      {{{"rope_theta", 500000}, {"rope_scaling", nullptr}}, 5e5},
      {{{"rope_parameters", {{"rope_theta", 5e5}, {"rope_type", "default"}}}}, 5e5},
      {{{"rope_parameters", {{"rope_theta", 5e5}}}, {"rope_theta", 3e4}}, 5e5},
      {{{"rope_parameters", {{"rope_type", "default"}}}, {"rope_theta", 3e4}}, 3e4},
      {{{"rope_scaling", {{"type", "default"}}}, {"rope_theta", 3e4}}, 3e4},
      {{{"rope_parameters", nullptr}}, 10000}};
  for (const auto& [change, theta] : cases) {
    TransformerConfig c = llama(change).described();
    EXPECT_EQ(c.position.as<RopeConfig>().theta, theta) << change;
  }
  EXPECT_FALSE(same_bits(llama().logits(), llama({{"rope_theta", 100}}).logits()));
}

TEST(Llama, MissingSettingsAreThoseOfTransformers) {
  Directory changed = llama({{"num_key_value_heads", nullptr}});
  for (const char* name : {"k_proj", "v_proj"})
    changed.tensors[std::string("model.layers.0.self_attn.") + name + ".weight"] =
        random_tensor({8, 8}, DType::f32);
  EXPECT_EQ(changed.logits().shape(), (Shape{1, 5, 10}));
  TransformerConfig c = changed.described();
  EXPECT_EQ(c.attention.as<MultiHead>().n_kv_heads, 2);
  EXPECT_EQ(c.norm_eps, 1e-6);
  EXPECT_FALSE(c.tie_embeddings);
  EXPECT_FALSE(c.bias);
  EXPECT_EQ(c.dropout, 0);
  EXPECT_TRUE(same_bits(llama({{"head_dim", 4}, {"attention_bias", false}, {"mlp_bias", nullptr}}).logits(),
                        llama().logits()));
}

TEST(Llama, SettingsThatBonsaiLacksAreRefusedByName) {
  const std::vector<std::pair<json, std::vector<std::string>>> cases = {
      {{{"head_dim", 8}}, {"head_dim is 8", "only 4"}},
      {{{"attention_bias", true}}, {"attention_bias is true", "only false"}},
      {{{"mlp_bias", true}}, {"mlp_bias is true", "only false"}},
      {{{"attention_dropout", 0.1}}, {"attention_dropout is 0.1", "only 0"}},
      {{{"hidden_act", "gelu"}}, {"hidden_act is gelu", "only silu"}},
      {{{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}}, {"type is linear"}},
      {{{"rope_scaling", {{"rope_type", "llama3"}, {"factor", 8.0}}}}, {"rope_type is llama3"}},
      {{{"rope_parameters", {{"rope_type", "yarn"}}}}, {"rope_type is yarn"}},
      {{{"rope_parameters", {{"rope_type", "default"}}}, {"rope_scaling", {{"type", "dynamic"}}}},
       {"type is dynamic"}},
      {{{"num_attention_heads", 3}, {"num_key_value_heads", 3}},
       {"hidden_size 8 is not divisible by num_attention_heads 3"}},
      {{{"num_attention_heads", 4}, {"num_key_value_heads", 3}},
       {"num_attention_heads 4 is not divisible by num_key_value_heads 3"}},
      {{{"num_key_value_heads", 0}}, {"num_key_value_heads", "less than 1"}},
      {{{"model_type", "mistral"}}, {"model_type is 'mistral'", "gpt2 and llama"}}};
  for (const auto& [change, words] : cases) llama(change).expect_refused(words);
}

TEST(Pretrained, AWrongTypeOrAMissingKeyIsNamed) {
  for (const char* key : {"vocab_size", "max_position_embeddings", "hidden_size", "intermediate_size",
                          "num_hidden_layers", "num_attention_heads"}) {
    llama({{key, nullptr}}).expect_refused({key, "missing or less than 1"});
    llama({{key, -2}}).expect_refused({key, "missing or less than 1"});
    llama({{key, "8"}}).expect_refused({key, "wrong type: \"8\""});
    llama({{key, 8.5}}).expect_refused({key, "wrong type: 8.5"});
  }
  for (const char* key : {"vocab_size", "n_positions", "n_embd", "n_layer", "n_head"})
    gpt2({{key, nullptr}}).expect_refused({key, "missing or less than 1"});
  const std::vector<json> wrong = {
      {{"rms_norm_eps", "1e-6"}}, {{"rope_theta", true}},         {{"rope_parameters", "default"}},
      {{"rope_scaling", {1, 2}}}, {{"tie_word_embeddings", 1}},   {{"hidden_act", 3}},
      {{"attention_bias", "no"}}, {{"num_key_value_heads", "2"}}, {{"head_dim", 2.0}}};
  for (const json& change : wrong) llama(change).expect_refused({change.begin().key(), "wrong type"});
}

TEST(Pretrained, TheHeadIsTheTokenTableWhereTheConfigSaysSo) {
  Directory apart = llama(), tied = llama({{"tie_word_embeddings", true}});
  tied.tensors.erase("lm_head.weight");
  EXPECT_FALSE(same_bits(apart.logits(), tied.logits()));
  const Tensor table = apart.tensors.at("model.embed_tokens.weight");
  apart.tensors["lm_head.weight"] = table;
  EXPECT_LE(relative_error(apart.logits(), tied.logits()), 1e-14);
  const Tensor right = tied.logits();
  tied.tensors["lm_head.weight"] = table;  // some files also store the tied head
  EXPECT_TRUE(same_bits(tied.logits(), right));
  apart.tensors.erase("lm_head.weight");
  apart.expect_refused({"has no tensor lm_head.weight"}, "model.safetensors");

  Directory untied = gpt2({{"tie_word_embeddings", false}});
  untied.expect_refused({"has no tensor lm_head.weight"}, "model.safetensors");
  untied.tensors["lm_head.weight"] = untied.tensors.at("transformer.wte.weight");
  EXPECT_LE(relative_error(untied.logits(), gpt2().logits()), 1e-14);
}

TEST(Pretrained, NamesMayStandWithoutTheirPrefix) {
  const auto shorter = [](Directory&& directory, const std::string& prefix) {
    std::map<std::string, Tensor> plain;
    for (const auto& [name, value] : directory.tensors)
      plain[name.starts_with(prefix) ? name.substr(prefix.size()) : name] = value;
    directory.tensors = std::move(plain);
    return directory.logits();
  };
  EXPECT_TRUE(same_bits(shorter(gpt2(), "transformer."), gpt2().logits()));
  EXPECT_TRUE(same_bits(shorter(llama(), "model."), llama().logits()));
}

TEST(Pretrained, NumbersThatNoMachineHoldsAreRefused) {
  const int64_t huge = int64_t{1} << 62;
  llama({{"num_hidden_layers", huge}}).expect_refused({"num_hidden_layers", "12 tensors"});
  gpt2({{"n_layer", huge}}).expect_refused({"n_layer", "16 tensors"});
  const auto expect_named = [&](const std::string& key, const std::string& error) {
    EXPECT_NE(error.find("4611686018427387904"), std::string::npos) << key << ": " << error;
  };
  for (const char* key : {"vocab_size", "hidden_size", "intermediate_size"})
    expect_named(key, error_of([&] { llama({{key, huge}}).logits(); }));
  for (const char* key : {"vocab_size", "n_positions", "n_embd", "n_inner"})
    expect_named(key, error_of([&] { gpt2({{key, huge}}).logits(); }));
}

// Each size is compared with a tensor's shape, and the directory is refused before a model is built.
TEST(Pretrained, SizesAreComparedWithTheStoredTensorsAtOnce) {  // B70
  const auto refused = [](Directory&& directory, const std::string& key) {
    const std::string error = error_of([&] { directory.open(); });
    EXPECT_NE(error.find("config.json] describes tensor"), std::string::npos) << key << ": " << error;
  };
  for (const char* key : {"vocab_size", "n_positions", "n_embd", "n_inner"})
    refused(gpt2({{key, 1000000000}}), key);
  for (const char* key : {"vocab_size", "hidden_size", "intermediate_size"})
    refused(llama({{key, 1000000000}}), key);
  refused(llama({{"num_key_value_heads", 2}}), "num_key_value_heads");
  // RoPE has no tensor; a maximum of 500 million positions costs no more than one of 16.
  EXPECT_TRUE(same_bits(llama({{"max_position_embeddings", 500000000}}).logits(), llama().logits()));
}

TEST(Pretrained, NestedAndLongSettingsAreRefused) {  // B69
  const Directory changed = llama();
  changed.open();
  const auto nested = [](size_t depth, const std::string& inner) {
    return std::string(depth, '[') + inner + std::string(depth, ']');
  };
  const std::string good = changed.config.dump(), open = good.substr(0, good.size() - 1);
  const auto error = [&](const std::string& text) {
    std::ofstream(changed.folder / "config.json") << text;
    return error_of([&] { HuggingFaceDirectory directory(changed.folder.path()); });
  };
  EXPECT_NE(error("{\"model_type\":" + nested(75000, "") + "}").find("config.json] its JSON is nested"),
            std::string::npos);
  EXPECT_NE(error(open + ",\"unused\":" + nested(131000, "1") + "}").find("nested more than"),
            std::string::npos);
  EXPECT_NE(error(std::string(200000, '[')).find("nested more than"), std::string::npos);
  EXPECT_NE(error(open + ",\"unused\":\"" + std::string(17 << 20, 'x') + "\"}").find("the limit is"),
            std::string::npos);
  EXPECT_EQ(error(open + ",\"unused\":" + nested(40, "1") + "}"), "no error");
}

TEST(Pretrained, AConfigThatIsNoFileIsNamed) {  // B74
  const Directory changed = llama();
  changed.open();
  const auto config = changed.folder / "config.json";
  const auto expect_error = [&](const std::string& words) {
    const std::string error = error_of([&] { HuggingFaceDirectory directory(changed.folder.path()); });
    EXPECT_NE(error.find("config.json"), std::string::npos) << error;
    EXPECT_NE(error.find(words), std::string::npos) << error;
    std::filesystem::remove(config);
  };
  std::filesystem::remove(config);
  ASSERT_EQ(::mkfifo(config.c_str(), 0600), 0);
  expect_error("it is not a regular file");
  std::filesystem::create_symlink("/dev/zero", config);
  expect_error("it is not a regular file");
  std::filesystem::create_directory(config);
  expect_error("it is a directory");
}

TEST(Pretrained, WhatAFileSaysIsShownEscapedAndShort) {  // B76
  const std::string evil = "\x1b[2J\n\x7f" + std::string(100000, 'x');
  const auto expect_shown = [](Directory&& directory) {
    const std::string error = error_of([&] { directory.open(); });
    EXPECT_NE(error.find("u001b[2J"), std::string::npos) << error.substr(0, 1000);
    EXPECT_NE(error.find("xxx..."), std::string::npos) << error.substr(0, 1000);
    EXPECT_LT(error.size(), 1000u);
    EXPECT_EQ(error.find_first_of("\x1b\n\x7f"), std::string::npos) << error;
  };
  for (const char* key : {"model_type", "hidden_act", "hidden_size"}) expect_shown(llama({{key, evil}}));
  expect_shown(llama({{"rope_scaling", {{"type", evil}}}}));
  expect_shown(llama({{"rope_scaling", evil}}));
  expect_shown(gpt2({{"activation_function", evil}}));
  Directory named = llama();
  named.tensors[evil] = zeros({1});
  expect_shown(std::move(named));
}

// A stored layer or bias without a place in the model would silently be ignored.
TEST(Pretrained, AStoredTensorWithoutAPlaceIsRefused) {
  for (const char* name : {"model.layers.0.self_attn.q_proj.bias", "model.layers.1.input_layernorm.weight"}) {
    Directory changed = llama();
    changed.tensors[name] = zeros({8});
    changed.expect_refused({name, "is not part of the model"}, "model.safetensors");
  }
  Directory old = gpt2();
  old.tensors["transformer.h.0.attn.bias"] = zeros({1, 1, 16, 16});
  old.tensors["transformer.h.0.attn.masked_bias"] = zeros({});
  EXPECT_TRUE(same_bits(old.logits(), gpt2().logits()));
  Directory table = llama();
  table.tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = zeros({1});
  EXPECT_TRUE(same_bits(table.logits(), llama().logits()));
}

TEST(Pretrained, ATensorOfAnotherShapeIsNamed) {
  for (const Shape& shape : {Shape{11, 8}, Shape{8, 10}, Shape{80}, Shape{}, Shape{1, 10, 8}}) {
    const auto expect_named = [&](Directory&& directory, const std::string& prefix, const std::string& name) {
      directory.tensors.at(prefix + name) = zeros(shape);
      const std::string error = error_of([&] { directory.logits(); });
      EXPECT_NE(error.find(name), std::string::npos) << error;
    };
    expect_named(llama(), "model.", "embed_tokens.weight");
    expect_named(gpt2(), "transformer.", "h.0.attn.c_attn.weight");
  }
}

TEST(Pretrained, FilesThatAreMissingOrDamagedAreNamed) {
  const auto error = [](const Folder& folder) {
    return error_of([&] { HuggingFaceDirectory directory(folder.path()); });
  };
  const Directory changed = llama();
  EXPECT_NE(error(changed.folder).find("model.safetensors"), std::string::npos);
  std::ofstream(changed.folder / "model.safetensors.index.json") << "{}";
  EXPECT_NE(error(changed.folder).find("in several files; Bonsai reads only a single model.safetensors"),
            std::string::npos);
  changed.open();
  for (const char* text : {"", "[]", "{\"model_type\":", "\"llama\"", "{} {}"}) {
    std::ofstream(changed.folder / "config.json") << text;
    EXPECT_NE(error(changed.folder).find("config.json] is not a JSON object"), std::string::npos) << text;
  }
  std::filesystem::remove(changed.folder / "config.json");
  EXPECT_NE(error(changed.folder).find("config.json] does not exist"), std::string::npos);
}

TEST(Gpt2, EveryActivationIsNamedOrRefused) {
  const std::vector<std::pair<json, std::string>> cases = {
      {nullptr, "gelu_tanh"}, {"gelu_new", "gelu_tanh"}, {"gelu_pytorch_tanh", "gelu_tanh"},
      {"gelu", "gelu"},       {"relu", "relu"},          {"silu", "silu"},
      {"tanh", "tanh"}};
  for (const auto& [word, op] : cases) {
    const Directory changed = gpt2({{"activation_function", word}});
    EXPECT_EQ(changed.described().mlp.as<Keys<FeedForwardConfig>>().activation, op);
    EXPECT_EQ(changed.logits().shape(), (Shape{1, 5, 10})) << word;
  }
  gpt2({{"activation_function", "quick_gelu"}}).expect_refused({"activation_function", "'quick_gelu'"});
}

TEST(Gpt2, TheInnerWidthIsFourTimesTheOuterUnlessItIsGiven) {
  EXPECT_TRUE(same_bits(gpt2({{"n_inner", nullptr}}).logits(), gpt2({{"n_inner", 32}}).logits()));
  const Directory narrow = gpt2({{"n_inner", 20}}, 20);
  EXPECT_EQ(narrow.described().d_hidden, 20);
  EXPECT_EQ(narrow.logits().shape(), (Shape{1, 5, 10}));
  for (const int bad : {0, -1}) gpt2({{"n_inner", bad}}).expect_refused({"n_inner", "less than 1"});
}

TEST(Gpt2, SettingsThatBonsaiLacksAreRefusedByName) {
  EXPECT_EQ(gpt2().described().dropout, 0.1);
  EXPECT_EQ(gpt2({{"embd_pdrop", 0}, {"attn_pdrop", 0.0}, {"resid_pdrop", 0}}).described().dropout, 0);
  const std::vector<std::pair<json, std::vector<std::string>>> cases = {
      {{{"scale_attn_by_inverse_layer_idx", true}}, {"scale_attn_by_inverse_layer_idx is true"}},
      {{{"scale_attn_weights", false}}, {"scale_attn_weights is false"}},
      {{{"add_cross_attention", true}}, {"add_cross_attention is true"}},
      {{{"attn_pdrop", 0}}, {"attn_pdrop is 0 but resid_pdrop is 0.1"}},
      {{{"embd_pdrop", 0.2}}, {"embd_pdrop is 0.2 but resid_pdrop is 0.1"}},
      {{{"n_head", 3}}, {"n_embd 8 is not divisible by n_head 3"}}};
  for (const auto& [change, words] : cases) gpt2(change).expect_refused(words);
}

}  // namespace
}  // namespace bonsai::test
