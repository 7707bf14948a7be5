// Named tensors in one file, in the format of https://github.com/huggingface/safetensors.
//
// Files are untrusted: everything in a header is checked against the file before it is used.
// Every failure is an Error that names the file and, if it concerns one, the tensor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bonsai/framework/core/tensor.h"

namespace bonsai {

class InputFile;

// A file, open for reading. Opening reads and checks only the header; read() reads the bytes of one tensor.
// The file stays open, so if a new one is renamed over its path the two are not mixed. Copies share it.
class SafetensorsFile {
 public:
  struct Entry {
    std::string dtype;  // as in the file: "F32", "I64", "BF16", ...
    Shape shape;
    uint64_t begin = 0, end = 0;  // byte offsets in the file
  };

  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  std::vector<std::string> names() const;  // sorted
  bool contains(std::string_view name) const { return entries_.contains(name); }
  const Shape& shape(std::string_view name) const { return entry(name).shape; }
  const std::string& dtype(std::string_view name) const { return entry(name).dtype; }

  // Reads F32, F64 and I32 unchanged, widens F16 and BF16 to f32, and narrows I64 to i32; throws if a
  // value does not fit. A file may contain other dtypes, but they cannot be read.
  Tensor read(std::string_view name) const;
  Tensor read(std::string_view name, DType as) const;  // rounded to f32 or widened to f64

 private:
  const Entry& entry(std::string_view name) const;

  std::shared_ptr<const InputFile> file_;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, Entry, std::less<>> entries_;
};

// Replaces the file once the new one is completely on disk; after a failure the old one is intact (see
// file.h). The data is in the order given, except that f64 tensors come first: every tensor is aligned, as
// PyTorch requires.
void write_safetensors(const std::filesystem::path& path,
                       const std::vector<std::pair<std::string, Tensor>>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace bonsai
