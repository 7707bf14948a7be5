// A run uses the values that the user wrote, or an error says where the mistake is and what to write instead.
#include <gtest/gtest.h>

#include <clocale>
#include <filesystem>
#include <fstream>
#include <locale>

#include "bonsai/framework/config/print.h"
#include "bonsai/framework/config/yaml.h"
#include "bonsai/tests/config_sample.h"
#include "bonsai/tests/folder.h"

namespace bonsai {
namespace {

std::string error_of(const std::string& text, const std::vector<std::string>& settings = {}) {
  try {
    load(text, settings);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

struct Refusal {
  std::string text, error;
  std::vector<std::string> settings = {};
};

void expect_refused(const std::vector<Refusal>& refusals) {
  for (const Refusal& refusal : refusals) EXPECT_EQ(error_of(refusal.text, refusal.settings), refusal.error);
}

void expect_good(const RunPart& run) {
  EXPECT_EQ(run.task, "copy");
  EXPECT_EQ(run.copy.length, 12);
  EXPECT_EQ(run.trainer.seed, -3);
  EXPECT_EQ(run.trainer.max_steps, 1000);
  EXPECT_EQ(run.trainer.optimizer.learning_rate, 1e-4);
  EXPECT_EQ(run.trainer.optimizer.weight_decay, 0.01);
  EXPECT_EQ(run.model.n_heads, 100);
  EXPECT_EQ(run.model.norm, "rms_norm");
  EXPECT_FALSE(run.model.bias);
  EXPECT_EQ(run.model.d_model, 128);
}

TEST(Config, LoadsWhatIsWrittenAndKeepsTheOtherDefaults) { expect_good(load(kGood)); }

TEST(Config, OrderInTheFileDoesNotMatterToSectionsChosenByAValue) {
  EXPECT_EQ(load("data:\n  length: 3\ntask: copy\n").copy.length, 3);
  EXPECT_EQ(load("data: {path: a}\n").text.path, "a");
  EXPECT_EQ(error_of("data:\n  path: a\ntask: copy\n"),
            "f.yaml:2:3: data.path is not a key of data; it is one only with task: text (known: length)");
}

// B25
TEST(Config, DuplicateKeysAreRefusedWithBothLines) {
  const std::string filler(10, '\n');
  expect_refused({
      {"model:\n  n_layers: 2\n" + filler + "  n_layers: 4\n",
       "f.yaml:13:3: model.n_layers is given twice, on lines 2 and 13"},
      {"trainer:\n  seed: 1\nmodel: {}\ntrainer:\n  seed: 1\n",
       "f.yaml:4:1: trainer is given twice, on lines 1 and 4"},
      {"trainer: {optimizer: {learning_rate: 0.1, learning_rate: 0.2}}\n",
       "f.yaml:1:43: trainer.optimizer.learning_rate is given twice, on lines 1 and 1"},
      {"seed: 1\n\"seed\": 1\n",
       "f.yaml: 2 errors\nf.yaml:1:1: seed is not a key; seed is a key of trainer (known: task, model, "
       "trainer, "
       "data)\nf.yaml:2:1: seed is given twice, on lines 1 and 2"},
  });
}

// B26
TEST(Config, UnknownKeysAreRefusedWithTheNearestOne) {
  const std::string model = " (known: n_layers, n_heads, d_model, dropout, norm, bias)";
  const std::string optimizer = " (known: learning_rate, weight_decay)";
  const std::string top = " (known: task, model, trainer, data)";
  expect_refused({
      {"model:\n  n_haeds: 2\n",
       "f.yaml:2:3: model.n_haeds is not a key of model; did you mean n_heads?" + model},
      {"model:\n  n_layer: 2\n",
       "f.yaml:2:3: model.n_layer is not a key of model; did you mean n_layers?" + model},
      {"model:\n  N_Layers: 2\n",
       "f.yaml:2:3: model.N_Layers is not a key of model; did you mean n_layers?" + model},
      {"model:\n  window: 2\n", "f.yaml:2:3: model.window is not a key of model" + model},
      {"trainer:\n  optimizer:\n    learning_rte: 0.01\n",
       "f.yaml:3:5: trainer.optimizer.learning_rte is not a key of trainer.optimizer; did you mean "
       "learning_rate?" +
           optimizer},
      {"trainer: {optimizer: {weight-decay: 0}}\n",
       "f.yaml:1:23: trainer.optimizer.weight-decay is not a key of trainer.optimizer; did you mean "
       "weight_decay?" +
           optimizer},
      {"model:\n  seed: 2\n",
       "f.yaml:2:3: model.seed is not a key of model; seed is a key of trainer" + model},
      {"trainer:\n  task: text\n",
       "f.yaml:2:3: trainer.task is not a key of trainer; task is a key of the top level (known: max_steps, "
       "optimizer, seed)"},
      {"model.n_heads: 2\n", "f.yaml:1:1: model.n_heads is not a key; n_heads is a key of model" + top},
      {"modle:\n  n_heads: 2\n", "f.yaml:1:1: modle is not a key; did you mean model?" + top},
      {"logging:\n  n_heads: 2\n", "f.yaml:1:1: logging is not a key" + top},
      {"task: txt\n", "f.yaml:1:7: task is 'txt'; it must be one of text, copy; did you mean text?"},
  });
}

struct Number {
  const char* text;
  double value;
};
const Number kNumbers[] = {{"1e-4", 0.0001},   {"1.0e-4", 0.0001},   {"1E-4", 0.0001},  {".5e-3", 0.0005},
                           {"'1e-4'", 0.0001}, {"\"1e-4\"", 0.0001}, {"+1e-4", 0.0001}, {"0.1", 0.1},
                           {"1", 1},           {"010", 10},          {"5.", 5},         {"1e+2", 100},
                           {"  7  # seven", 7}};

void expect_numbers() {
  for (const Number& n : kNumbers)
    EXPECT_EQ(load(std::string("trainer:\n  optimizer:\n    learning_rate: ") + n.text + "\n")
                  .trainer.optimizer.learning_rate,
              n.value)
        << n.text;
}

// B27
TEST(Config, ExponentsAreNumbersHoweverTheyAreWritten) { expect_numbers(); }

// B27
TEST(Config, WhatIsNoNumberIsRefusedWithItsLine) {
  const std::string rule = "; it must be a number, at least 0";
  for (const char* text : {"1e-4x", "1,5e-4", ".nan", "nan", "NaN", ".inf", "inf", "-.inf", "-1", "1e999",
                           "0x10", "1_000", "3k", "1 000", "+-1", "true", "--1", "1e", "e3"})
    EXPECT_EQ(error_of(std::string("# x\ntrainer:\n  optimizer:\n    learning_rate: ") + text + "\n"),
              std::string("f.yaml:4:20: trainer.optimizer.learning_rate is '") + text + "'" + rule);
  for (const char* text : {"", "~", "null", "  # later"})
    EXPECT_EQ(error_of(std::string("trainer:\n  optimizer:\n    learning_rate: ") + text + "\n"),
              "f.yaml:3:5: trainer.optimizer.learning_rate is empty" + rule +
                  "; leave the key out for its default");
}

class CommaPunctuation : public std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

// B27
TEST(Config, TheSameInALocaleWithDecimalCommas) {
  const std::locale before = std::locale::global(std::locale(std::locale::classic(), new CommaPunctuation));
  for (const char* name : {"de_DE.UTF-8", "de_DE", "fr_FR.UTF-8", "C"})
    if (std::setlocale(LC_ALL, name)) break;
  expect_numbers();
  expect_good(load(kGood));
  RunPart run;
  run.model.dropout = 0.125;
  run.model.d_model = 1234567;
  EXPECT_EQ(load(dump_config(config_keys(run))).model.dropout, 0.125);
  EXPECT_NE(dump_config(config_keys(run)).find("d_model: 1234567\n"), std::string::npos);
  EXPECT_EQ(error_of("model: {dropout: 1,5}\n").substr(0, 30), "f.yaml:1:20: model.5 is not a ");
  std::locale::global(before);
  std::setlocale(LC_ALL, "C");
}

// B32
TEST(Config, OutOfRangeIsRefusedWithNameValueAndRule) {
  const std::string rule = "; it must be a whole number, at least 1";
  expect_refused({
      {"model:\n  n_heads: 0\n", "f.yaml:2:12: model.n_heads is '0'" + rule},
      {"model:\n  n_heads: -1\n", "f.yaml:2:12: model.n_heads is '-1'" + rule},
      {"model:\n  n_heads: no\n", "f.yaml:2:12: model.n_heads is 'no'" + rule},
      {"model:\n  n_heads: 1.5\n", "f.yaml:2:12: model.n_heads is '1.5'" + rule},
      {"model:\n  n_heads: 9223372036854775808\n",
       "f.yaml:2:12: model.n_heads is '9223372036854775808'" + rule},
      {"model:\n  n_heads: 1e300\n", "f.yaml:2:12: model.n_heads is '1e300'" + rule},
      {"model:\n  dropout: 1.5\n", "f.yaml:2:12: model.dropout is '1.5'; it must be a number, from 0 to 1"},
      {"model:\n  dropout: -0.1\n", "f.yaml:2:12: model.dropout is '-0.1'; it must be a number, from 0 to 1"},
      {"trainer:\n  seed: x\n", "f.yaml:2:9: trainer.seed is 'x'; it must be a whole number"},
      {"model:\n  bias: yes\n", "f.yaml:2:9: model.bias is 'yes'; it must be true or false; write true"},
      {"model:\n  bias: Off\n", "f.yaml:2:9: model.bias is 'Off'; it must be true or false; write false"},
      {"model:\n  bias: TRUE\n", "f.yaml:2:9: model.bias is 'TRUE'; it must be true or false; write true"},
      {"model:\n  bias: maybe\n", "f.yaml:2:9: model.bias is 'maybe'; it must be true or false"},
      {"model:\n  norm: layernorm\n",
       "f.yaml:2:9: model.norm is 'layernorm'; it must be one of layer_norm, rms_norm; did you mean "
       "layer_norm?"},
  });
  EXPECT_EQ(load("trainer:\n  seed: 9223372036854775807\n").trainer.seed, INT64_MAX);
  EXPECT_EQ(load("trainer:\n  seed: -9223372036854775808\n").trainer.seed, INT64_MIN);
  EXPECT_EQ(load("trainer:\n  seed: 2.0\n").trainer.seed, 2);
}

TEST(Config, TextsStayTheTextTheyWere) {
  for (const auto& [yaml, value] :
       std::vector<std::pair<std::string, std::string>>{{"no", "no"},
                                                        {"0100", "0100"},
                                                        {"1e-4", "1e-4"},
                                                        {"''", ""},
                                                        {"'~'", "~"},
                                                        {"a b", "a b"},
                                                        {"'it''s'", "it's"},
                                                        {"\"a\\\"b\\n\"", "a\"b\n"},
                                                        {"|\n    two\n    lines", "two\nlines\n"},
                                                        {"ä", "ä"}})
    EXPECT_EQ(load("data:\n  path: " + yaml + "\n").text.path, value) << yaml;
  EXPECT_EQ(error_of("data:\n  path: ~\n"),
            "f.yaml:2:3: data.path is empty; it must be text; write '' for none");
}

TEST(Config, SectionsAndValuesAreNotTakenForEachOther) {
  const std::string rule = "; it must be a section with keys of its own";
  expect_refused({
      {"model: 3\n", "f.yaml:1:8: model is '3'" + rule},
      {"model: [n_heads, 3]\n", "f.yaml:1:8: model is a list" + rule},
      {"model:\n# n_heads: 3\n", "f.yaml:1:1: model is empty" + rule + "; leave the key out for its default"},
      {"model:\n  n_heads:\n    count: 3\n",
       "f.yaml:3:5: model.n_heads is a section; it must be a whole number, at least 1"},
      {"model:\n  bias: [true]\n", "f.yaml:2:9: model.bias is a list; it must be true or false"},
      {"data:\n  path:\n    - a\n", "f.yaml:3:5: data.path is a list; it must be text"},
  });
  EXPECT_EQ(load("model: {}\n").model.n_heads, 4);
}

TEST(Config, AllErrorsComeAtOnceInTheOrderOfTheFile) {
  EXPECT_EQ(
      error_of("trainer:\n  sed: 1\n  max_steps: x\nmodel:\n  n_heads: 0\n  n_heads: 1\n",
               {"model.bias=1", "model.n_heds=3"}),
      "f.yaml: 6 errors\n"
      "f.yaml:2:3: trainer.sed is not a key of trainer; did you mean seed? (known: max_steps, optimizer, "
      "seed)\n"
      "f.yaml:3:14: trainer.max_steps is 'x'; it must be a whole number, at least 0\n"
      "f.yaml:5:12: model.n_heads is '0'; it must be a whole number, at least 1\n"
      "f.yaml:6:3: model.n_heads is given twice, on lines 5 and 6\n"
      "--set model.bias=1: model.bias is '1'; it must be true or false; write true\n"
      "--set model.n_heds=3: model.n_heds is not a key of model; did you mean n_heads? (known: n_layers, "
      "n_heads, d_model, dropout, norm, bias)");
}

TEST(Config, SettingsLieOnTopOfTheFileAndTheLastWins) {
  const RunPart run = load("model:\n  n_heads: no\ntrainer:\n",
                           {"model.n_heads=8", "task=copy", "data.length=2", "trainer.seed=1",
                            "trainer.seed=2", "trainer.optimizer.learning_rate=1e-4"});
  EXPECT_EQ(run.model.n_heads, 8);
  EXPECT_EQ(run.copy.length, 2);
  EXPECT_EQ(run.trainer.seed, 2);
  EXPECT_EQ(run.trainer.optimizer.learning_rate, 1e-4);
  EXPECT_EQ(load("task: text\n", {"data.path=a=b c"}).text.path, "a=b c");
  EXPECT_EQ(load("task: text\n", {"data.path="}).text.path, "");
}

TEST(Config, AWrongSettingNamesItself) {
  const std::string good = "task: text\n";
  expect_refused({
      {good,
       "--set model.n_heads=x: model.n_heads is 'x'; it must be a whole number, at least 1",
       {"model.n_heads=x"}},
      {good,
       "--set model.n_heads=: model.n_heads is ''; it must be a whole number, at least 1",
       {"model.n_heads="}},
      {good,
       "--set seed=1: seed is not a key; seed is a key of trainer (known: task, model, trainer, data)",
       {"seed=1"}},
      {good, "--set model=3: model is '3'; it must be a section with keys of its own", {"model=3"}},
      {good, "--set task.x=3: task is a section; it must be one of text, copy", {"task.x=3"}},
      {good, "--set model.n_heads: must be key=value, as in trainer.max_steps=10", {"model.n_heads"}},
      {good, "--set =3: must be key=value, as in trainer.max_steps=10", {"=3"}},
      {good, "--set model.=3: must be key=value, as in trainer.max_steps=10", {"model.=3"}},
      {good, "--set model..bias=3: must be key=value, as in trainer.max_steps=10", {"model..bias=3"}},
      {good, "--set data.path=\\xff: is not UTF-8 text", {"data.path=\xFF"}},
  });
}

TEST(Config, LinesAndColumnsAreThoseOfAnEditor) {
  const std::string rule = "; it must be a whole number, at least 1";
  const std::string wrong = "# c\n\n  # d\nmodel:  # e\n\n  norm: \"rms_norm\"  # f\n  n_heads:   x\n";
  std::string crlf, cr;
  for (char c : wrong) (crlf += c == '\n' ? "\r\n" : std::string(1, c), cr += c == '\n' ? '\r' : c);
  for (const std::string& text : {wrong, crlf, cr, "\xEF\xBB\xBF" + wrong})
    EXPECT_EQ(error_of(text), "f.yaml:7:14: model.n_heads is 'x'" + rule);
  expect_refused({
      {"\xEF\xBB\xBFmodle: {}\n",
       "f.yaml:1:1: modle is not a key; did you mean model? (known: task, model, trainer, data)"},
      {"model: {norm: rms_norm, n_heads: x}\n", "f.yaml:1:34: model.n_heads is 'x'" + rule},
      {"model: {norm: rms_norm,\n  # c\n  n_heads: x}\n", "f.yaml:3:12: model.n_heads is 'x'" + rule},
      {"data:\n  path: |\n    one\n\n    two\nmodel:\n  n_heads: x\n",
       "f.yaml:7:12: model.n_heads is 'x'" + rule},
      {"# größe\ndata: {path: größe, length: 3}\n",
       "f.yaml:2:21: data.length is not a key of data; it is one only with task: copy (known: path)"},
  });
}

TEST(Config, WhatIsNoConfigIsRefusedInOneSentence) {
  const std::string tail = "; a config is a short text of keys and values";
  expect_refused({
      {"", "f.yaml: empty, or only comments" + tail},
      {"# task: text\n\n", "f.yaml: empty, or only comments" + tail},
      {"---\n", "f.yaml: empty, or only comments" + tail},
      {"{}\n", "f.yaml: empty, or only comments" + tail},
      {"~\n", "f.yaml: empty, or only comments" + tail},
      {"hello\n", "f.yaml: holds no `key: value`" + tail},
      {"- task\n", "f.yaml: holds a list" + tail},
      {"task: text\n---\nmodel: {}\n",
       "f.yaml:2:1: a second document starts here, after `---` or less indented; a config is one"},
      {"task: text\n...\nmodel: {}\n",
       "f.yaml:3:1: a second document starts here, after `---` or less indented; a config is one"},
      {"task: text\nmodel:\n\tbias: true\n", "f.yaml:3:1: a tab in the indentation; YAML takes only spaces"},
      {"model:\n  bias: true\n\tnorm: x\n", "f.yaml:3:1: a tab in the indentation; YAML takes only spaces"},
      {"model:\n  n_heads:4\n  bias: true\n",
       "f.yaml:3:7: not YAML: illegal map value: here or on the line above, is the indentation right and a "
       "space "
       "after each colon?"},
      {"data:\n  path: \"abc\nmodel: {}\n", "f.yaml:2:9: this quote is not closed on its line"},
      {"data:\n  path: 'it''s\nmodel: {}\n", "f.yaml:2:9: this quote is not closed on its line"},
      {"base: &b {n_heads: 1}\nmodel:\n  <<: *b\n",
       "f.yaml:1:7: an anchor (&); a config takes none: write the value where it is used"},
      {"model:\n  <<: {n_heads: 1}\n",
       "f.yaml:2:3: a merge key (<<); a config takes none: write the keys out"},
      {"model: *b\n", "f.yaml:1:8: not YAML: the referenced anchor is not defined"},
      {"model:\n  n_heads: !!int 3\n", "f.yaml:2:12: a tag (!); a config takes none: write the plain value"},
      {"? [a]\n: 3\n", "f.yaml:1:3: a key must be a plain word"},
      {": 3\n", "f.yaml:1:1: a key must be a plain word"},
      {std::string("task: text\nmodel: \0\n", 20), "f.yaml: byte 0x00 on line 2 is not UTF-8 text" + tail},
      {"task: t\xE4xt\n", "f.yaml: byte 0xe4 on line 1 is not UTF-8 text" + tail},
      {"task: text\n" + std::string(70000, '#'), "f.yaml: longer than 64 KiB" + tail},
  });
}

TEST(Config, ReadsFilesAndSaysWhyItCannot) {
  namespace fs = std::filesystem;
  const test::Folder temporary;
  const fs::path& folder = temporary.path();
  std::ofstream(folder / "good.yaml") << kGood;
  expect_good(load_config<RunPart>(folder / "good.yaml"));
  RunPart defaults;
  defaults.model.d_model = 64;
  EXPECT_EQ(load_config(folder / "good.yaml", {"model.n_heads=2"}, defaults).model.d_model, 64);
  const auto error = [](const fs::path& path) -> std::string {
    try {
      load_config<RunPart>(path);
    } catch (const ConfigError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(error(folder), folder.string() + ": is a directory; a config is a file");
  EXPECT_EQ(error(folder / "no.yaml"),
            (folder / "no.yaml").string() + ": cannot be read: No such file or directory");
}

TEST(Config, WhatAFileSaysIsShownEscapedAndShort) {  // B76
  for (const char* text : {"model: {d_model: \"\\e[2J\\n\\x9b1m\"}\n", "\"\\e[2J\\n\\x9b1m\": 1\n",
                           "model: {\"\\e[2J\\n\\x9b1m\": 1}\n"})
    try {
      load(text);
      FAIL() << text;
    } catch (const ConfigError& e) {
      const std::string error = e.what();
      EXPECT_NE(error.find("\\u001b[2J\\n\\u009b1m"), std::string::npos) << error;
      EXPECT_EQ(error.find_first_of("\x1b\n\xc2"), std::string::npos) << error;
    }
}

TEST(Quote, TextIsPrintableShortAndReadable) {  // B76
  EXPECT_EQ(escaped("plain \xC3\xA9 \xF0\x9F\x98\x80 \"\\"), "plain \xC3\xA9 \xF0\x9F\x98\x80 \"\\");
  EXPECT_EQ(in_quotes("a\"b\\"), "\"a\\\"b\\\\\"");
  EXPECT_EQ(escaped(std::string("\0\t\r\n\x1b\x7f", 6)), "\\u0000\\t\\r\\n\\u001b\\u007f");
  EXPECT_EQ(escaped("\xC2\x9B\xE2\x80\xAE\xE2\x81\xA6"), "\\u009b\\u202e\\u2066");
  EXPECT_EQ(escaped("\xFF\xC0\x80\xED\xA0\x80\xE2\x82"), "\\xff\\xc0\\x80\\xed\\xa0\\x80\\xe2\\x82");
  EXPECT_EQ(escaped("abcdef", 6), "abcdef");
  EXPECT_EQ(escaped("abcdefg", 6), "abcdef...");
  EXPECT_EQ(escaped("abcde\xC3\xA9", 6), "abcde...") << "a character is not cut in two";
}

// A damaged file must not crash the program.
TEST(Config, DamagedFilesAreRefusedOrLoaded) {
  const std::string good = kGood;
  int loaded = 0, refused = 0;
  const auto attempt = [&](const std::string& text) {
    try {
      load(text);
      ++loaded;
    } catch (const ConfigError&) {
      ++refused;
    }
  };
  const std::string bytes = std::string("\0\t\n\r\"'#&*!|>%@`{}[],:-? \x7F\x80\xC3\xF0\xFF", 30) + "~<=.0";
  for (size_t i = 0; i < good.size(); ++i) {
    attempt(good.substr(0, i));
    attempt(good.substr(i));
    attempt(good.substr(0, i) + good.substr(i + 1));
    attempt(good.substr(0, i) + good.substr(std::min(good.size(), i + 17)));
    for (size_t k = i % 3; k < bytes.size(); k += 3) {
      std::string text = good;
      text[i] = bytes[k];
      attempt(text);
      attempt(good.substr(0, i) + bytes[k] + good.substr(i));
    }
  }
  for (const char* nested : {"[", "{", "{a: ", "- ", "? ", "a:\n "}) {
    std::string text;
    while (text.size() < 20000) text += nested;
    attempt(text);
  }
  EXPECT_GT(loaded, 100);
  EXPECT_GT(refused, 1000);
}

TEST(Config, NumbersInTextAreWholeFiniteAndDecimal) {
  int64_t whole = 0;
  for (const char* text : {"1e-1", "9007199254740992.0", "1e400", "", "+", "-", " 1", "1 ", "nan", "0b1"})
    EXPECT_FALSE(parse_number(text, whole)) << text;
  EXPECT_TRUE(parse_number("-2e2", whole));
  EXPECT_EQ(whole, -200);
}

}  // namespace
}  // namespace bonsai
