// INTERMEDIATES: where the tensors lie that runs leave for later runs, such as the outputs of a workflow's steps (004
// StreamBox, section 6). Names for `--intermediates`; the worker's tensor store carries them out.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/policy.hpp"

namespace troupe::gpu {

struct IntermediatesPolicy {
  bool on_device = true;  // in idle device memory; else in host memory, as any other output
  bool moves = true;      // to host memory, when weights or runs need the device's
};
inline constexpr std::string_view kDefaultIntermediates = "elastic";

// `elastic` (default): in idle device memory; weights and runs that need it move them to host memory.
// `no-movement`: in idle device memory, and they stay there; weights and runs find so much less of it.
// `host-only`: in host memory (004's baseline).
[[nodiscard]] std::span<const PolicyEntry<IntermediatesPolicy>> Intermediates();
// The empty name is the default. NotFound lists the names.
[[nodiscard]] absl::StatusOr<IntermediatesPolicy> FindIntermediates(std::string_view name);

struct IntermediatesOptions {
  std::string name{kDefaultIntermediates};  // has been checked
  std::uint32_t percent = 50;               // of device memory, that they may take
};

}  // namespace troupe::gpu
