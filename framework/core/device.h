// Where a tensor's bytes live.
#pragma once

#include <cstdint>

namespace bonsai {

struct Device {
  enum Type : uint8_t { cpu, cuda } type = cpu;
  int8_t index = 0;
  bool operator==(const Device&) const = default;
};
inline constexpr int kDeviceTypes = 2;

constexpr const char* name_of(Device d) { return d.type == Device::cpu ? "cpu" : "cuda"; }

}  // namespace bonsai
