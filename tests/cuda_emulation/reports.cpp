// Options, counts, and reports that name the kernel, the thread and the line.
#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

#include "bonsai/tests/cuda_emulation/emulation.h"

namespace emulation {
namespace {

constexpr size_t kMaxReports = 200;

bool set(const char* name) {
  const char* value = std::getenv(name);
  return value && *value && std::strcmp(value, "0") != 0;
}

Options from_environment() {
  Options o;
  const char* order = std::getenv("BONSAI_EMULATION_ORDER");
  const std::string named = order && *order ? order : "forward";
  if (named == "reverse")
    o.order = Order::reverse;
  else if (named == "random")
    o.order = Order::random;
  else if (named != "forward")
    std::fprintf(stderr, "[emulation] BONSAI_EMULATION_ORDER=%s is none of forward, reverse, random\n",
                 order);
  if (const char* seed = std::getenv("BONSAI_EMULATION_SEED"))
    o.seed = static_cast<unsigned>(std::strtoul(seed, nullptr, 10));
  const char* algorithms = std::getenv("BONSAI_EMULATION_ALGORITHMS");
  const std::string which = algorithms && *algorithms ? algorithms : "found";
  if (which == "none")
    o.algorithms = Algorithms::none;
  else if (which == "unusable")
    o.algorithms = Algorithms::unusable;
  else if (which != "found")
    std::fprintf(stderr, "[emulation] BONSAI_EMULATION_ALGORITHMS=%s is none of found, none, unusable\n",
                 algorithms);
  if (const char* devices = std::getenv("BONSAI_EMULATED_DEVICES")) o.devices = std::atoi(devices);
  o.lazy = set("BONSAI_EMULATION_LAZY");
  o.host_guard = set("BONSAI_EMULATION_HOST_GUARD");
  o.quiet = set("BONSAI_EMULATION_QUIET");
  if (const char* bytes = std::getenv("BONSAI_EMULATED_MEMORY")) o.memory = std::strtoull(bytes, nullptr, 10);
  return o;
}

// Never destroyed, because tensors may outlive main.
struct State {
  std::vector<std::string> reports;
  cudaError_t broken = cudaSuccess, last = cudaSuccess;
  std::recursive_mutex calls;
  const Call* call = nullptr;
  std::map<const void*, std::string> names;
  std::string text;
};
State& state() {
  static State& s = *new State;
  return s;
}

void keep(const std::string& what) {
  if (state().reports.size() >= kMaxReports) return;
  state().reports.push_back(what);
  if (!options().quiet) std::fprintf(stderr, "[emulation] %s\n", what.c_str());
}

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// The functions and lines of an address, the innermost inlined function first. Uses addr2line of binutils,
// which also knows local symbols.
std::vector<std::pair<std::string, std::string>> look_up(const void* code) {
  std::vector<std::pair<std::string, std::string>> found;
  Dl_info info{};
  if (!code || !dladdr(code, &info)) return found;
  const std::string file =
      access(info.dli_fname, R_OK) == 0 ? info.dli_fname : "/proc/" + std::to_string(getpid()) + "/exe";
  std::array<char, 64> offset{};
  std::snprintf(
      offset.data(), offset.size(), "%zx",
      static_cast<size_t>(static_cast<const char*>(code) - static_cast<const char*>(info.dli_fbase)));
  FILE* pipe =
      popen(("addr2line -f -C -i -e '" + file + "' 0x" + offset.data() + " 2>/dev/null").c_str(), "r");
  if (!pipe) return found;
  const auto line = [&] {
    std::array<char, 2048> text{};
    std::string s = std::fgets(text.data(), text.size(), pipe) ? text.data() : "";
    while (!s.empty() && (s.back() == '\n' || s.back() == '\r')) s.pop_back();
    return s;
  };
  for (std::string function = line(); !function.empty(); function = line())
    found.emplace_back(function, line());
  pclose(pipe);
  return found;
}

std::string without(std::string text, const std::string& part) {
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part))
    text.erase(at, part.size());
  return text;
}

}  // namespace

Options& options() {
  static Options& o = *new Options(from_environment());
  return o;
}
Counts& counts() {
  static Counts c;
  return c;
}
const std::vector<std::string>& reports() { return state().reports; }
void forget_reports() {
  state().reports.clear();
  state().broken = state().last = cudaSuccess;
}

Call::Call(const char* name, const void* from)
    : lock_(state().calls), outer_(state().call), name_(name), from_(from) {
  state().call = this;
}
Call::~Call() { state().call = outer_; }

// " (cudaFree, from file.cu:12)" for the outermost call.
std::string caller() {
  const Call* call = state().call;
  while (call && call->outer_) call = call->outer_;
  if (!call || !call->from_) return "";
  const std::string line = line_of(static_cast<const char*>(call->from_) - 1);
  return line.empty() ? "" : std::string(" (") + call->name_ + ", from " + line + ")";
}

void report(const std::string& what) {
  keep(in_kernel() ? what : what + caller());
  state().broken = cudaErrorLaunchFailure;
}
cudaError_t refuse(cudaError_t status, const std::string& what) {
  keep(what + caller());
  return set_last(status);
}
cudaError_t set_last(cudaError_t status) { return state().last = status; }
cudaError_t broken() { return state().broken; }

const std::string& name_of(const void* kernel) {
  std::string& name = state().names[kernel];
  if (!name.empty()) return name;
  if (const auto found = look_up(kernel); !found.empty()) name = found.back().first;
  name = without(without(name, "(anonymous namespace)::"), "void ");
  name = name.substr(0, name.find('('));
  if (name.empty() || name[0] == '?') name = "a kernel without a name";
  return name;
}

std::string line_of(const void* code) {
  for (const auto& [function, line] : look_up(code)) {
    if (line.find("/include/c++/") != std::string::npos) continue;
    const std::string file = base_name(without(line.substr(0, line.find(" (discriminator")), "\n"));
    if (file.starts_with('?') || file.starts_with("launch.h:") || file.starts_with("emulated_device.h:"))
      continue;
    return file;
  }
  return "";
}

std::string text_of(const Place& place) { return base_name(place.file) + ":" + std::to_string(place.line); }

}  // namespace emulation

extern "C" {

__attribute__((visibility("default"))) const char* bonsai_emulation_errors() {
  const emulation::Call call("bonsai_emulation_errors");
  std::string& text = emulation::state().text;
  text.clear();
  for (const std::string& r : emulation::reports()) text += (text.empty() ? "" : "\n") + r;
  emulation::forget_reports();
  return text.c_str();
}

__attribute__((visibility("default"))) void bonsai_emulation_counts(int64_t* out) {
  const emulation::Call call("bonsai_emulation_counts");
  const emulation::Counts& c = emulation::counts();
  const std::array<int64_t, 6> values{c.to_device, c.to_host,     c.within_device,
                                      c.launches,  c.allocations, c.synchronisations};
  std::memcpy(out, values.data(), sizeof values);
}

cudaError_t cudaGetLastError() {
  const emulation::Call call("cudaGetLastError");
  const cudaError_t status = cudaPeekAtLastError();
  emulation::set_last(cudaSuccess);
  return status;
}
cudaError_t cudaPeekAtLastError() {
  return emulation::broken() ? emulation::broken() : emulation::state().last;
}

const char* cudaGetErrorName(cudaError_t status) {
  switch (status) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle: return "cudaErrorInvalidResourceHandle";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorNotSupported: return "cudaErrorNotSupported";
    default: return "unrecognized error code";
  }
}

// Appends the last report, so that the program's error message contains it.
const char* cudaGetErrorString(cudaError_t status) {
  const emulation::Call call("cudaGetErrorString");
  if (status == cudaSuccess) return "no error";
  if (status == cudaErrorMemoryAllocation) return "out of memory";
  static std::string& text = *new std::string;
  text = status == cudaErrorInvalidValue           ? "invalid argument"
         : status == cudaErrorInvalidConfiguration ? "invalid configuration argument"
         : status == cudaErrorLaunchFailure        ? "unspecified launch failure"
                                                   : cudaGetErrorName(status);
  if (!emulation::reports().empty()) text += ": " + emulation::reports().back();
  return text.c_str();
}

}  // extern "C"
