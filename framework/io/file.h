// Files that are read in pieces, files that are replaced atomically, and locks on folders.
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

// A regular file, open for reading. Throws for devices, pipes and folders, whose size is unknown. If another
// file is renamed over its path, this one stays open.
class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path);

  void read(uint64_t at, void* to, size_t bytes) const;  // reads all bytes or throws
  uint64_t bytes() const { return bytes_; }              // size at the time of opening
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  Descriptor file_;
  uint64_t bytes_ = 0;
};

// Reads all of a regular file. Throws if it has more than `most` bytes.
std::string read_file(const std::filesystem::path& path, uint64_t most);

// Replaces the file at `path` once the new one is completely on disk. The old file remains until commit().
// Without a commit() the new file is removed. Writes to <path>.tmp-<process id>, so a path may have one
// writer at a time.
class ReplacementFile {
 public:
  explicit ReplacementFile(const std::filesystem::path& path);
  ~ReplacementFile();
  ReplacementFile(const ReplacementFile&) = delete;
  ReplacementFile& operator=(const ReplacementFile&) = delete;

  // Appends bytes to the new file.
  void write(const void* from, size_t bytes);
  // Waits until the new file is on disk, and puts it in place of the old one.
  void commit();

 private:
  void require(bool ok, const char* otherwise) const;  // adds the system's error message

  std::filesystem::path path_;
  std::string part_;  // the temporary file; empty if there is none to remove
  Descriptor folder_, file_;
};

// Replaces the file at `path` by one that holds `text`.
void replace_file(const std::filesystem::path& path, const std::string& text);

// Removes temporary files that killed writers of this path have left.
void remove_unfinished(const std::filesystem::path& path);

// Locks a folder during its lifetime. Locking it again, in this or another process, throws.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);

  bool is_at(const std::filesystem::path& folder) const;  // false after the folder was removed or renamed

 private:
  Descriptor folder_;
};

}  // namespace bonsai
