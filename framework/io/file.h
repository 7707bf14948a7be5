// Files that are read in pieces, and files that must not be lost while they are written anew.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace bonsai {

struct Descriptor {
  int number = -1;

  Descriptor() = default;
  explicit Descriptor(int number) : number(number) {}
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
};

// A regular file to read from: never a device, a pipe or a folder, whose end nobody knows. It stays the same one when another is renamed over its path.
class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path);

  void read(uint64_t at, void* to, size_t bytes) const;  // all of them, or an Error
  uint64_t bytes() const { return bytes_; }              // when it was opened
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  Descriptor file_;
  uint64_t bytes_ = 0;
};

// All of a regular file of at most `most` bytes.
std::string read_file(const std::filesystem::path& path, uint64_t most);

// Puts a new file in place of `path` once all of it is on the disk. Until commit() the old one stays,
// and without a commit() nothing of the new one is left. Writes to <path>.tmp-<process id>: one
// writer of a path at a time.
class ReplacementFile {
 public:
  explicit ReplacementFile(const std::filesystem::path& path);
  ~ReplacementFile();
  ReplacementFile(const ReplacementFile&) = delete;
  ReplacementFile& operator=(const ReplacementFile&) = delete;

  void write(const void* from, size_t bytes);
  void commit();

 private:
  void require(bool ok, const char* otherwise) const;  // adds the system's reason

  std::filesystem::path path_;
  std::string part_;  // the path until it is whole; empty when there is none to remove
  Descriptor folder_, file_;
};

// Removes what writers of this path that were killed have left beside it.
void remove_unfinished(const std::filesystem::path& path);

// While it lives, another process (or another lock) that asks for the same folder gets an Error.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);

  bool is_at(const std::filesystem::path& folder) const;  // false once it was removed or renamed

 private:
  Descriptor folder_;
};

}  // namespace bonsai
