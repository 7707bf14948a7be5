// bonsai new KIND NAME [--dir DIR]: a file with a part of your own that works, and a project around it.
#include <fmt/format.h>

#include <cctype>
#include <filesystem>
#include <map>

#include "bonsai/framework/config/document.h"
#include "bonsai/framework/io/file.h"
#include "bonsai/tools/command.h"

namespace bonsai {

// Written by CMake: the text of each file in tools/new.
const std::map<std::string, std::string>& part_templates();

namespace {

namespace fs = std::filesystem;

std::vector<std::string> kinds() {
  std::vector<std::string> all;
  for (const auto& [file, text] : part_templates())
    if (file.ends_with(".cpp")) all.push_back(fs::path(file).stem().string());
  return all;
}

bool is_part_name(const std::string& name) {
  constexpr const char* kLetters = "abcdefghijklmnopqrstuvwxyz";
  return name.find_first_of(kLetters) == 0 &&
         name.find_first_not_of(std::string(kLetters) + "0123456789_") == std::string::npos;
}

// my_layer: MyLayer
std::string pascal_case(const std::string& name) {
  std::string out;
  for (size_t i = 0; i < name.size(); ++i)
    if (name[i] != '_')
      out += i == 0 || name[i - 1] == '_' ? static_cast<char>(std::toupper(name[i])) : name[i];
  return out;
}

std::string with(std::string text, const std::string& old, const std::string& with) {
  for (size_t at = text.find(old); at != std::string::npos; at = text.find(old, at + with.size()))
    text.replace(at, old.size(), with);
  return text;
}

void write_new(const fs::path& path, const std::string& text) {
  check(!fs::exists(path), "new", "{} exists already; choose another name or folder", path.string());
  replace_file(path, text);
  fmt::print("{}\n", path.string());
}

void write_part(const std::string& kind, const std::string& name, const std::string& folder) {
  const auto text_of = [&](const std::string& file) {
    return with(with(part_templates().at(file), "my_part", name), "MyPart", pascal_case(name));
  };
  const fs::path base = fs::path(folder) / name;
  if (!folder.empty()) fs::create_directories(folder);
  write_new(base.string() + ".cpp", text_of(kind + ".cpp"));
  if (folder.empty()) return;
  write_new(base.string() + ".yaml", text_of(kind + ".yaml"));
  const fs::path project = fs::path(folder) / "CMakeLists.txt";
  if (!fs::exists(project)) write_new(project, part_templates().at("project.cmake"));
  fmt::print(
      "\nTo build the program with this part in it, and to test the part:\n"
      "  cd {} && cmake -B build && cmake --build build && ctest --test-dir build\n", folder);
}

}  // namespace

void add_new(CLI::App& program) {
  auto kind = std::make_shared<std::string>(), name = std::make_shared<std::string>(),
       folder = std::make_shared<std::string>();
  CLI::App* command = program.add_subcommand("new", "write a file with a part of your own, to begin from");
  command->add_option("kind", *kind, "of the part")->required()->check(CLI::IsMember(kinds()));
  command->add_option("name", *name, "of the part and its file, as in my_layer")->required();
  command
      ->add_option("--dir", *folder,
                   "in this folder, with a config and a project that builds and tests the part")
      ->check(not_empty());
  command->callback([=] {
    if (!is_part_name(*name))
      throw ConfigError(
          fmt::format("the name of a part has lower-case letters, digits and underscores, and begins with a "
                      "letter, as in "
                      "my_layer; it cannot be '{}'",
                      *name));
    write_part(*kind, *name, *folder);
  });
}

}  // namespace bonsai
