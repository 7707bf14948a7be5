// Shared by the fuzz targets. A target takes arbitrary bytes and must end with an Error or a valid value.
// Anything else (a crash, a hang, undefined behaviour, another exception, more than 2 GB of memory) is a
// fault.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "bonsai/framework/core/error.h"
#include "bonsai/framework/core/quote.h"

namespace bonsai::fuzz {

// A file in memory with a path of its own.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : number_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    if (number_ < 0 || ::write(number_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
      std::abort();
  }
  ~MemoryFile() { ::close(number_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(number_); }

 private:
  int number_;
};

// Runs `read`; an Error must be short, printable text. The lines of a ConfigError are separate problems.
template <class Read>
void expect_value_or_error(Read read) {
  try {
    read();
  } catch (const Error& e) {
    std::string_view text = e.what();
    if (text.size() > 20000) std::abort();
    for (const char c : text)
      if ((c >= 0 && c < ' ' && c != '\n') || c == 0x7F) std::abort();
    if (find_bad_byte(text) != text.npos) std::abort();
  }
}

}  // namespace bonsai::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
