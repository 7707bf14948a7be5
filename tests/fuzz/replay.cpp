// Runs a fuzz target on each file of a folder, without libFuzzer, so that faults found once are always tested
// for.
// usage: fuzz_NAME FOLDER
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "bonsai/tests/fuzz/fuzz.h"

int main(int argc, char** argv) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(argc > 1 ? argv[1] : ".")) {
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), {}};
    std::printf("%s\n", entry.path().filename().c_str());
    std::fflush(stdout);  // the last name is that of a file that ends the process
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    ++files;
  }
  std::printf("%d files\n", files);
  return files > 0 ? 0 : 1;
}
