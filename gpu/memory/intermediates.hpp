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
  std::uint32_t percent =
      50;  // of device memory, that they may take; 0: they lie in host memory, as any other output
  bool fixed = false;  // it is set aside at the start; else it is what is idle
  bool moves = true;   // to host memory, when weights or runs need the device's
  bool ahead = true;   // as much as was lacking lately is copied there before it is needed
};
inline constexpr std::string_view kDefaultIntermediates = "elastic";

// `elastic` (default): in idle device memory; weights and runs that need it move them to host memory, to which as much as was
// lacking lately has been copied ahead (pressure awareness).
// `no-pressure`: the same, and nothing is copied before the memory is needed.
// `no-movement`: in idle device memory, and they stay there; weights and runs find so much less of it.
// `static`: in an eighth of device memory, which is set aside at the worker's start; what finds no room there lies in host
// memory (a pool that does not follow the load, as 004's stream-only has).
// `host-only`: in host memory (004's Function-IPC).
[[nodiscard]] std::span<const PolicyEntry<IntermediatesPolicy>> Intermediates();
// The empty name is the default. NotFound lists the names.
[[nodiscard]] absl::StatusOr<IntermediatesPolicy> FindIntermediates(std::string_view name);

struct IntermediatesOptions {
  std::string name{kDefaultIntermediates};  // has been checked
};

}  // namespace troupe::gpu
