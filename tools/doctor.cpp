// bonsai doctor: reports the processor, memory, threads, kernels, BLAS and CUDA found on this machine.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <fstream>

#include "bonsai/framework/backend/backend.h"
#include "bonsai/framework/core/limits.h"
#include "bonsai/framework/core/parallel.h"
#include "bonsai/tools/command.h"

namespace bonsai {
namespace {

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
}

}  // namespace

void add_doctor(CLI::App& program) {
  program.add_subcommand("doctor", "report the processor and libraries of this machine")->callback([] {
    const CpuInfo& cpu = cpu_info();
    fmt::print("version     {}\n", BONSAI_VERSION);
    fmt::print("processor   {}\n", processor());
    const ProcessorLimits limits = processor_limits();
    fmt::print("processors  {} in the affinity mask, {}\n", limits.allowed,
               std::isinf(limits.quota) ? "no quota" : fmt::format("a quota of {:.4g}", limits.quota));
    fmt::print("memory      at most {:.1f} GiB\n", static_cast<double>(memory_limit()) / (1 << 30));
    fmt::print("threads     {}\n", threads());
    fmt::print("kernels     {} (built for {}; this processor runs {})\n", cpu.level,
               fmt::join(cpu.levels, ", "), fmt::join(cpu.runnable, ", "));
    fmt::print("BLAS        {}\n", cpu.blas);
    fmt::print("products    {}\n", cpu.products);
    const CudaInfo cuda = cuda_info();
    fmt::print("cuda        {}{}\n", cuda.usable ? "" : "none: ", cuda.text);
  });
}

}  // namespace bonsai
