#include "bonsai/trainers/run_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <system_error>

#include "bonsai/framework/config/document.h"

namespace bonsai {
namespace {

namespace fs = std::filesystem;

// A symbolic link in a downloaded run folder could point to any file of the user.
void check_own_files(const RunFolder& folder) {
  const auto check_type = [](const fs::path& path, fs::file_type type, const char* name) {
    const fs::file_status status = fs::symlink_status(path);
    if (!fs::exists(status) || status.type() == type) return;
    throw ConfigError(fmt::format("{} is {}, not {}; a run does not write through it, so replace it",
                                  path.string(), fs::is_symlink(status) ? "a link" : "something else", name));
  };
  for (const fs::path& file : {folder.last(), folder.best()}) {
    check_type(file.parent_path().parent_path(), fs::file_type::directory, "a folder");
    check_type(file.parent_path(), fs::file_type::directory, "a folder");
    check_type(file, fs::file_type::regular, "a file");
  }
  for (const fs::path& file : {folder.config(), folder.metrics()})
    check_type(file, fs::file_type::regular, "a file");
}

bool make_folder(const fs::path& path) {
  if (::mkdir(path.c_str(), 0777) == 0) return true;
  if (errno == EEXIST) return false;
  throw fs::filesystem_error("mkdir", path, std::error_code(errno, std::generic_category()));
}

}  // namespace

fs::path RunFolder::newest() const {
  for (const fs::path& file : {last(), best()})
    if (fs::exists(file)) return file;
  return {};
}

// A run that was killed at its start may have an empty folder or only a temporary file of config.yaml.
bool is_run(const RunFolder& folder) {
  if (!fs::is_directory(folder.path)) return false;
  if (fs::exists(folder.last()) || fs::exists(folder.best())) return true;
  if (fs::is_regular_file(folder.config())) {
    std::string first;
    std::ifstream file(folder.config());
    std::getline(file, first);
    return first + "\n" == kWrittenByTrain;
  }
  const fs::directory_iterator entries(folder.path), end;
  return std::all_of(entries, end, [&](const auto& entry) {
    return entry.path().filename().string().starts_with("config.yaml.tmp-");
  });
}

void check_run_folder(const RunFolder& folder, bool resume) {
  const std::string name = folder.path.string();
  if (folder.numbered) return;
  if (!resume && fs::exists(fs::symlink_status(folder.path)))
    throw ConfigError(
        fmt::format("{} exists; go on with it by --resume {}, or give another --out", name, name));
  if (!resume) return;
  if (!fs::exists(folder.path))
    throw ConfigError(fmt::format("{} does not exist, so there is nothing to resume", name));
  if (!fs::is_directory(folder.path)) throw ConfigError(fmt::format("{} is no run folder", name));
  check_own_files(folder);
  if (!is_run(folder)) throw ConfigError(fmt::format("{} is no run folder", name));
}

RunFolder claim(const RunFolder& folder, bool resume) {
  if (resume) return check_run_folder(folder, true), folder;
  const fs::path path = folder.path.has_filename() ? folder.path : folder.path.parent_path();
  std::error_code ignored;  // make_folder then fails with an error that names the folder
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), ignored);
  if (!folder.numbered && !make_folder(path)) check_run_folder({path}, false);
  if (!folder.numbered) return {path};
  for (int n = 1;; ++n)
    if (const fs::path next = fmt::format("{}-{}", path.string(), n); make_folder(next)) return {next};
}

}  // namespace bonsai
