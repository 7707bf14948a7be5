// Named tensors in one file, in the format of https://github.com/huggingface/safetensors.
//
// Files come from anywhere: nothing in a header is believed before it is checked against the file.
// Every failure is an Error that names the file and, where there is one, the tensor.
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

// A file to read from. Opening reads and checks the header alone; each read takes one tensor's bytes.
// The file stays open, so a new one renamed over the same path is not mixed in. Copies share it.
class SafetensorsFile {
 public:
  struct Entry {
    std::string dtype;         // the file's word: "F32", "I64", "BF16", ...
    Shape shape;
    uint64_t begin = 0, end = 0;  // bytes of the file
  };

  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  std::vector<std::string> names() const;  // sorted
  bool contains(std::string_view name) const { return entries_.contains(name); }
  const Shape& shape(std::string_view name) const { return entry(name).shape; }
  const std::string& dtype(std::string_view name) const { return entry(name).dtype; }

  // F32, F64 and I32 as they are; F16 and BF16 widened to f32; I64 narrowed to i32, an error where a
  // value does not fit. Other dtypes may be in a file but cannot be read.
  Tensor read(std::string_view name) const;
  Tensor read(std::string_view name, DType as) const;  // rounded to f32 or widened to f64

 private:
  const Entry& entry(std::string_view name) const;

  std::shared_ptr<const InputFile> file_;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, Entry, std::less<>> entries_;
};

// Replaces the file once all of it is on the disk; after a failure the old one is intact (see file.h).
// The data lies in the order given, but f64 comes first: every tensor is aligned, as PyTorch requires.
void write_safetensors(const std::filesystem::path& path,
                       const std::vector<std::pair<std::string, Tensor>>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace bonsai
