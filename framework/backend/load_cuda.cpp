#include "bonsai/framework/backend/load_cuda.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include "bonsai/framework/core/error.h"

namespace bonsai::cuda {
namespace {

constexpr const char* kFile = "libbonsai_cuda.so";

// The library's entry point, or null and the reason in `problem`.
Open find_entry(std::string& problem) {
  const char* variable = std::getenv("BONSAI_CUDA_LIBRARY");
  const bool named = variable && *variable;
  std::error_code none;
  const std::filesystem::path beside =
      std::filesystem::read_symlink("/proc/self/exe", none).parent_path() / kFile;
  const std::string path = named ? variable : std::filesystem::exists(beside, none) ? beside.string() : kFile;
  if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (void* entry = dlsym(library, kOpen)) return reinterpret_cast<Open>(entry);
    problem = fmt::format("{} is not Bonsai's CUDA library; set BONSAI_CUDA_LIBRARY to it or unset it", path);
  } else if (named || path != kFile) {
    problem = fmt::format("the CUDA library cannot be loaded: {}{}", dlerror(),
                          named ? "; correct BONSAI_CUDA_LIBRARY or unset it" : "");
  } else {
    problem = fmt::format("this build has no {}; build with -DBONSAI_CUDA=ON, which needs nvcc", kFile);
  }
  return nullptr;
}

KernelTable make_table(DType dtype, int index, void (*fill)(KernelTable&)) {
  KernelTable table;
  table.for_each([&](const char* name, auto& kernel) {
    kernel.name = name;
    kernel.device = {Device::cuda, static_cast<int8_t>(index)};
    kernel.dtype = dtype;
  });
  fill(table);
  return table;
}

Loaded open_device(int index) {
  static const Host host{
      [](const char* where, const char* message) { fail(where, std::string_view(message)); },
      [](size_t bytes) { return pool({Device::cuda}).take(bytes); },
      [](void* block, size_t bytes) { pool({Device::cuda}).give_back(block, bytes); }};
  Loaded loaded{.index = index};
  const Open open = find_entry(loaded.problem);
  if (!open) return loaded;
  if (const char* problem = open(kLayout, index, host, loaded.library)) {
    loaded.problem = problem;
    return loaded;
  }
  loaded.f32 = make_table(DType::f32, index, loaded.library.fill_f32);
  loaded.f64 = make_table(DType::f64, index, loaded.library.fill_f64);
  install_memory(Device::cuda, loaded.library.memory);
  return loaded;
}

}  // namespace

const Loaded& load(int index) {
  static const Loaded loaded = open_device(index);
  return loaded;
}

}  // namespace bonsai::cuda
