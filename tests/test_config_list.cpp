// Lists of sections in configs: loading, settings, errors and printing.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bonsai/framework/config/print.h"
#include "bonsai/framework/config/yaml.h"

namespace bonsai {
namespace {

struct Point {
  int64_t step = 1;
  std::string name = "a";
  template <class V>
  void visit(V& v) {
    v("step", step, "where | it is", at_least(0));
    v("name", name, "what it is called");
  }
};

struct Line {
  std::vector<Point> points;
  template <class V>
  void visit(V& v) {
    v.list("points", points, "of the line");
  }
};

struct Drawing {
  Line line;
  int64_t size = 3;
  template <class V>
  void visit(V& v) {
    v.section("line", line, "what is drawn");
    v("size", size, "of the paper", at_least(1));
  }
};

std::string loaded(const std::string& text, const std::vector<std::string>& settings = {}) {
  try {
    ConfigFile file = ConfigFile::from_text(text, "f.yaml");
    for (const std::string& setting : settings) file.set(setting);
    std::string points;
    for (const Point& p : file.load<Drawing>().line.points) points += std::to_string(p.step) + p.name + " ";
    return points;
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(ConfigList, ItemsAreLoadedInBlockAndFlowStyle) {
  EXPECT_EQ(loaded("size: 1"), "");
  EXPECT_EQ(loaded("line: {points: []}"), "");
  EXPECT_EQ(loaded("line: {points: [{step: 2, name: b}, {name: c}]}"), "2b 1c ");
  EXPECT_EQ(loaded("line:\n  points:\n    - step: 2\n      name: b\n    - name: c\n"), "2b 1c ");
}

TEST(ConfigList, SettingsReplaceTheListOrAKeyOfAnItem) {
  const std::string two = "line: {points: [{step: 2}, {step: 5}]}";
  EXPECT_EQ(loaded(two, {"line.points=[{step: 7, name: x}]"}), "7x ");
  EXPECT_EQ(loaded("size: 1", {"line.points=[{step: 7, name: x}]"}), "7x ");
  EXPECT_EQ(loaded(two, {"line.points.1.step=9"}), "2a 9a ");
  EXPECT_EQ(loaded(two, {"line.points.2.step=9"}),
            "--set line.points.2.step=9: is in a list that has no item of this number");
  EXPECT_EQ(
      loaded(two, {"line.points=[{step: x}]"}),
      "--set line.points=[{step: x}]:1:15: line.points.0.step is 'x'; it must be a whole number, at least 0");
  EXPECT_NE(loaded(two, {"line.points=[{step: 7"}).find("not YAML"), std::string::npos);
}

TEST(ConfigList, ErrorsNameTheItemAndItsPlace) {
  EXPECT_EQ(loaded("line: {points: [{step: 2}, {step: -1}]}"),
            "f.yaml:1:35: line.points.1.step is '-1'; it must be a whole number, at least 0");
  EXPECT_EQ(
      loaded("line:\n  points:\n    - stpe: 2\n"),
      "f.yaml:3:7: line.points.0.stpe is not a key of line.points.0; did you mean step? (known: step, name)");
  EXPECT_EQ(loaded("line: {points: [3]}"),
            "f.yaml:1:17: line.points.0 is '3'; it must be a section with keys of its own");
  EXPECT_EQ(loaded("line: {points: {step: 2}}"),
            "f.yaml:1:16: line.points is a section; it must be a list of sections, as in [{...}, {...}]");
  EXPECT_EQ(loaded("line: {points: 3}"),
            "f.yaml:1:16: line.points is '3'; it must be a list of sections, as in [{...}, {...}]");
  EXPECT_EQ(loaded("size: [3]"), "f.yaml:1:7: size is a list; it must be a whole number, at least 1");
  Drawing wrong;
  wrong.line.points = {{.step = 1}, {.step = -2}};
  try {
    check_config("here", wrong);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[here] line.points.1.step is -2; it must be at least 0");
  }
}

TEST(ConfigList, IsPrintedAsYamlInOneLine) {
  Drawing d;
  EXPECT_EQ(dump_config(config_keys(d)), "line:\n  points: []\nsize: 3\n");
  d.line.points = {{.step = 2, .name = "b: c"}, {}};
  EXPECT_EQ(dump_config(config_keys(d)),
            "line:\n  points: [{step: 2, name: \"b: c\"}, {step: 1, name: a}]\nsize: 3\n");
  EXPECT_EQ(loaded(dump_config(config_keys(d))), "2b: c 1a ");
  EXPECT_NE(explain_config(config_keys(d)).find("* line.points  [{step: 2, name: \"b: c\"}"),
            std::string::npos);
  EXPECT_NE(
      config_markdown(config_keys(d)).find("| `line.points[].step` | `1` | at least 0 | where \\| it is |"),
      std::string::npos);
  const auto schema = nlohmann::json::parse(config_schema(config_keys<Drawing>()));
  const auto points = schema["properties"]["line"]["properties"]["points"];
  EXPECT_EQ(points["type"], "array");
  EXPECT_EQ(points["items"]["additionalProperties"], false);
  EXPECT_EQ(points["items"]["properties"]["step"]["minimum"], 0);
}

}  // namespace
}  // namespace bonsai
