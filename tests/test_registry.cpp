// Parts that a config names: as a name or as a section with keys, and errors in them.
#include <nlohmann/json.hpp>

#include "bonsai/framework/config/registry.h"

#include "bonsai/framework/config/print.h"
#include "bonsai/framework/config/yaml.h"
#include "bonsai/tests/support.h"

namespace bonsai::test {
namespace {

struct Shape2D {
  virtual ~Shape2D() = default;
  virtual double area() const = 0;
};

void register_shapes();
struct ShapeKind {
  static constexpr const char *name = "shape", *standard = "square";
  using Make = std::unique_ptr<Shape2D>(double scale);
  static void register_all() { register_shapes(); }
};

struct SquareConfig {
  double side = 2;
  int64_t count = 1;
  template <class V>
  void visit(V& v) {
    v("side", side, "length of a side", at_least(0));
    v("count", count, "number of squares", at_least(1));
  }
};
struct Square final : Shape2D {
  Square(double scale, const SquareConfig& c) : scale(scale), config(c) {}
  double area() const override {
    return scale * config.side * config.side * static_cast<double>(config.count);
  }
  double scale;
  SquareConfig config;
};
struct Point final : Shape2D {
  Point(double, NoKeys) {}
  double area() const override { return 0; }
};
void register_shapes() {
  add_part<ShapeKind, Square, SquareConfig>("square");
  add_part<ShapeKind, Point>("point");
}

struct Drawing {
  Choice<ShapeKind> shape;
  double width = 1;
  template <class V>
  void visit(V& v) {
    v.choice("shape", shape, "what is drawn");
    v.renamed("side", "shape.side");
    v("width", width, "of the paper", at_least(0));
  }
};

Drawing load(const std::string& text, const std::vector<std::string>& settings = {}) {
  ConfigFile file = ConfigFile::from_text(text, "f.yaml");
  for (const std::string& s : settings) file.set(s);
  return file.load<Drawing>();
}

TEST(Registry, APartIsANameOrASection) {
  EXPECT_EQ(load("width: 1\n").shape.make(3.0)->area(), 12);
  EXPECT_EQ(load("shape: point\n").shape.make(3.0)->area(), 0);
  EXPECT_EQ(load("shape: {kind: square, side: 3}\n").shape.make(1.0)->area(), 9);
  EXPECT_EQ(load("shape: {side: 3, count: 2}\n").shape.make(1.0)->area(), 18) << "the standard kind";
  EXPECT_EQ(load("shape: square\n", {"shape.side=5"}).shape.make(1.0)->area(), 25);
  EXPECT_EQ(load("shape: {side: 3}\n", {"shape=point"}).shape.name(), "point");
  EXPECT_EQ(load("shape: point\n", {"shape.kind=square", "shape.side=1"}).shape.make(1.0)->area(), 1);
}

TEST(Registry, ErrorsNameThePartTheKeyAndThePlace) {
  EXPECT_EQ(error_of([] { load("shape: sqare\n"); }),
            "f.yaml:1:8: shape is 'sqare'; it must be one of point, square; did you mean square?");
  EXPECT_EQ(error_of([] { load("shape: {kind: circle}\n"); }),
            "f.yaml:1:15: shape.kind is 'circle'; it must be one of point, square");
  EXPECT_EQ(error_of([] { load("shape: {sid: 1}\n"); }),
            "f.yaml:1:9: shape.sid is not a key of shape; did you mean side? (known: kind, side, count)");
  EXPECT_EQ(error_of([] { load("shape: {kind: point, side: 1}\n"); }),
            "f.yaml:1:22: shape.side is not a key of shape; it is one only with shape: square (known: kind)");
  EXPECT_EQ(error_of([] { load("shape: {side: -1}\n"); }),
            "f.yaml:1:15: shape.side is '-1'; it must be a number, at least 0");
  EXPECT_EQ(error_of([] { load("side: 3\n"); }),
            "f.yaml:1:1: side is not a key; it is called shape.side now (known: shape, width)");
  Drawing wrong;
  wrong.shape = "circle";
  EXPECT_EQ(error_of([&] { check_config("drawing", wrong); }),
            "[drawing] shape is 'circle'; it must be one of point, square");
  EXPECT_EQ(error_of([&] { wrong.shape.make(1.0); }),
            "[shape] there is none named 'circle'; use one of point, square");
  EXPECT_EQ(error_of([] { add_part<ShapeKind, Point>("point"); }),
            "[registry] there are two parts of the kind shape named point");
}

TEST(Registry, AnOldKeyMovesToItsPart) {
  const auto renamed = [](const char* text) {
    ConfigFile file = ConfigFile::from_text(text, "f.yaml");
    file.rename_old_keys<Drawing>();
    return dump_config(config_keys(file.load<Drawing>()));
  };
  EXPECT_EQ(renamed("side: 4\n"), "shape:\n  kind: square\n  side: 4\n  count: 1\nwidth: 1\n");
  EXPECT_EQ(renamed("shape: point\nside: 4\n"), "shape: point\nwidth: 1\n")
      << "the key meant nothing to this part";
}

TEST(Registry, WhatIsPrintedLoadsToTheSame) {
  Drawing drawing = load("shape: {side: 3}\nwidth: 2\n");
  const std::string text = dump_config(config_keys(drawing));
  EXPECT_EQ(text, "shape:\n  kind: square\n  side: 3\n  count: 1\nwidth: 2\n");
  EXPECT_EQ(dump_config(config_keys(load(text))), text);
  EXPECT_EQ(dump_config(config_keys(load("shape: point\n"))), "shape: point\nwidth: 1\n");
  EXPECT_NE(explain_config(config_keys(drawing)).find("* shape.side   3 (default 2)"), std::string::npos)
      << explain_config(config_keys(drawing));
}

TEST(Registry, SchemaAndTableListTheKeysOfEveryPart) {
  const std::vector<ConfigKey> all = all_config_keys(load("shape: point\n"));
  const std::string table = config_markdown(all);
  EXPECT_NE(table.find("| `shape.side` | `2` |"), std::string::npos) << table;
  EXPECT_NE(table.find("; only with `shape.kind: square` |"), std::string::npos) << table;
  const auto schema = nlohmann::json::parse(config_schema(all))["properties"]["shape"]["anyOf"];
  EXPECT_TRUE(schema[1]["properties"].contains("side")) << schema;
  EXPECT_EQ(schema[0]["enum"], schema[1]["properties"]["kind"]["enum"]);
}

TEST(Registry, AChoiceIsAValue) {
  Choice<ShapeKind> a = SquareConfig{.side = 3}, b = a;
  b.as<SquareConfig>().side = 1;
  EXPECT_EQ(a.make(1.0)->area(), 9);
  EXPECT_EQ(b.make(1.0)->area(), 1);
  a = b;
  EXPECT_EQ(a.make(1.0)->area(), 1);
  b = "point";
  EXPECT_TRUE(b == "point" && !(a == "point"));
  EXPECT_NE(error_of([&] { b.as<SquareConfig>(); }).find("another type"), std::string::npos);
}

}  // namespace
}  // namespace bonsai::test
