#include "bonsai/framework/io/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#include "bonsai/framework/core/error.h"
#include "bonsai/framework/core/quote.h"

namespace bonsai {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWhere = "file";
constexpr size_t kLongestPath = 4096;
constexpr const char* kUnfinished = ".tmp-";  // follows the file's name and precedes the process id

void require_call(bool ok, const std::string& path, const char* otherwise) {
  if (!ok) fail(kWhere, "{}: {}: {}", path, otherwise, std::generic_category().message(errno));
}

// The path to replace. A symbolic link remains, and its target is replaced. Throws for anything but a regular
// file: replacing a device such as /dev/null would delete it.
fs::path replaceable(const fs::path& path) {
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  if (!fs::exists(status)) return path;
  check(fs::is_regular_file(status), kWhere, "{}: cannot be replaced: it is {}", path.string(),
        fs::is_directory(status) ? "a directory" : "not a regular file");
  const fs::path found = fs::canonical(path, code);
  return code ? path : found;
}

}  // namespace

Descriptor::~Descriptor() {
  if (number >= 0) ::close(number);
}

// O_NONBLOCK: otherwise opening a pipe would wait for a writer.
InputFile::InputFile(const fs::path& path)
    : path_(escaped(path.string(), kLongestPath)),
      file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  require_call(file_.number >= 0, path_, "cannot be opened");
  struct stat status = {};
  require_call(::fstat(file_.number, &status) == 0, path_, "cannot be examined");
  check(S_ISREG(status.st_mode), kWhere, "{}: cannot be read: it is {}", path_,
        S_ISDIR(status.st_mode) ? "a directory" : "not a regular file");
  bytes_ = static_cast<uint64_t>(status.st_size);
}

// pread instead of mmap: if a mapped file is truncated, accessing a missing page kills the process.
void InputFile::read(uint64_t at, void* to, size_t bytes) const {
  for (size_t done = 0; done < bytes;) {
    const ssize_t got = ::pread(file_.number, static_cast<char*>(to) + done, bytes - done,
                                static_cast<off_t>(at + done));
    if (got < 0 && errno == EINTR) continue;
    require_call(got >= 0, path_, "cannot be read");
    check(got > 0, kWhere, "{}: ends at byte {}; it had {} bytes when it was opened", path_,
          at + done, bytes_);
    done += static_cast<size_t>(got);
  }
}

std::string read_file(const fs::path& path, uint64_t most) {
  const InputFile file(path);
  check(file.bytes() <= most, kWhere, "{}: has {} bytes; the limit is {}", file.path(), file.bytes(), most);
  std::string text(file.bytes(), '\0');
  file.read(0, text.data(), text.size());
  return text;
}

ReplacementFile::ReplacementFile(const fs::path& path) : path_(replaceable(path)) {
  const fs::path folder = path_.has_parent_path() ? path_.parent_path() : ".";
  folder_.number = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  require(folder_.number >= 0, "its folder cannot be opened");
  const std::string part = fmt::format("{}{}{}", path_.string(), kUnfinished, ::getpid());
  file_.number = ::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
  require(file_.number >= 0, "cannot be written");
  part_ = part;
}

ReplacementFile::~ReplacementFile() {
  if (!part_.empty()) ::unlink(part_.c_str());
}

void ReplacementFile::write(const void* from, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t put = ::write(file_.number, static_cast<const char*>(from) + done, bytes - done);
    if (put < 0 && errno == EINTR) continue;
    require(put >= 0, "cannot be written");
    done += static_cast<size_t>(put);
  }
}

void ReplacementFile::commit() {
  require(::fsync(file_.number) == 0, "cannot be written");
  require(::close(std::exchange(file_.number, -1)) == 0, "cannot be written");
  require(::rename(part_.c_str(), path_.c_str()) == 0, "cannot be replaced");
  part_.clear();
  // Some file systems cannot sync a folder and return EINVAL.
  require(::fsync(folder_.number) == 0 || errno == EINVAL,
          "was written, but may be lost in a power failure");
}

void ReplacementFile::require(bool ok, const char* otherwise) const {
  require_call(ok, path_.string(), otherwise);
}

void replace_file(const fs::path& path, const std::string& text) {
  ReplacementFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

void remove_unfinished(const fs::path& path) {
  std::error_code ignored;  // files that cannot be listed or removed remain
  const std::string start = path.filename().string() + kUnfinished;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(path.parent_path(), ignored))
    if (entry.path().filename().string().starts_with(start)) found.push_back(entry.path());
  for (const fs::path& file : found) fs::remove(file, ignored);
}

// On a file system without such locks, the folder is not locked.
FolderLock::FolderLock(const fs::path& folder)
    : folder_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  require_call(folder_.number >= 0, folder.string(), "cannot be opened");
  check(::flock(folder_.number, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK, kWhere,
        "{}: another process is writing to it", folder.string());
}

bool FolderLock::is_at(const fs::path& folder) const {
  struct stat there = {}, locked = {};
  return ::stat(folder.c_str(), &there) == 0 && ::fstat(folder_.number, &locked) == 0 &&
         there.st_dev == locked.st_dev && there.st_ino == locked.st_ino;
}

}  // namespace bonsai
