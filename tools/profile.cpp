#include "bonsai/tools/profile.h"

#include <fmt/format.h>

#include <fstream>

namespace bonsai {
namespace {

// The values of a row per step.
struct PerStep {
  double calls, ms, share, gflops, gbytes;  // the last two are per second, 0 if not known

  PerStep(const Profile& p, const Profile::Row& row)
      : calls(static_cast<double>(row.calls) / static_cast<double>(p.steps())),
        ms(static_cast<double>(row.ns) / 1e6 / static_cast<double>(p.steps())),
        share(static_cast<double>(row.ns) / static_cast<double>(std::max<int64_t>(1, p.ns()))) {
    const double ns = static_cast<double>(std::max<int64_t>(1, row.ns));
    gflops = row.work.flops / ns;
    gbytes = gflops > 0 ? 0 : row.work.bytes / ns;
  }
};

constexpr const char* kOutside = "(outside ops)";

}  // namespace

std::string profile_table(const Profile& p) {
  std::string text =
      fmt::format("{:<10}{:<32}{:>8}{:>11}{:>9}  {}\n", "part", "op", "calls", "ms", "share", "rate");
  for (const Profile::Row& row : p.rows()) {
    const PerStep s(p, row);
    std::string rate;
    if (s.gflops > 0) rate = fmt::format("{:8.1f} GFLOP/s", s.gflops);
    if (s.gbytes > 0) rate = fmt::format("{:8.1f} GB/s", s.gbytes);
    text += fmt::format("{:<10}{:<32}{:>8.1f}{:>11.3f}{:>7.1f} %  {}\n", row.part,
                        row.op.empty() ? kOutside : row.op, s.calls, s.ms, 100 * s.share, rate);
  }
  const double ms = static_cast<double>(p.ns()) / 1e6 / static_cast<double>(p.steps());
  return text + fmt::format("{:<50}{:>11.3f}{:>7.1f} %  mean of {} steps\n", "a step", ms, 100.0, p.steps());
}

nlohmann::ordered_json profile_json(const Profile& p) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Profile::Row& row : p.rows()) {
    const PerStep s(p, row);
    nlohmann::ordered_json object = {
        {"part", row.part}, {"op", row.op}, {"calls", s.calls}, {"ms", s.ms}, {"share", s.share}};
    if (s.gflops > 0) object["gflop_per_s"] = s.gflops;
    if (s.gbytes > 0) object["gb_per_s"] = s.gbytes;
    rows.push_back(object);
  }
  return rows;
}

void write_trace(const Profile& p, const std::string& path) {
  constexpr const char* kKinds[] = {"part", "op", "kernel"};
  const int64_t start = p.events().empty() ? 0 : p.events().front().begin;
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Profile::Event& e : p.events()) {
    nlohmann::ordered_json object = {{"name", e.name},
                                     {"cat", kKinds[e.kind]},
                                     {"ph", "X"},
                                     {"ts", static_cast<double>(e.begin - start) / 1000},
                                     {"dur", static_cast<double>(e.end - e.begin) / 1000},
                                     {"pid", 1},
                                     {"tid", 1}};
    if (!e.layer.empty()) object["args"]["layer"] = e.layer;
    if (e.work.flops > 0) object["args"]["flops"] = e.work.flops;
    if (e.work.bytes > 0) object["args"]["bytes"] = e.work.bytes;
    all.push_back(object);
  }
  std::ofstream file(path);
  file << all.dump() << "\n" << std::flush;
  check(file.good(), "bench", "the trace {} could not be written", path);
}

}  // namespace bonsai
