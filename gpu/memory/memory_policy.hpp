// MEMORY POLICIES: how the worker's quota of device memory is handed out. Names for `--memory`; DeviceMemory
// carries them out.
#pragma once

#include <span>
#include <string_view>

#include "base/policy.hpp"
#include "base/units.hpp"

namespace troupe::gpu {

struct MemoryPolicy {
  // Where ranges come from.
  enum class Source {
    kPartitions,    // our own partitions inside one range that is taken from the device at the start
    kCachedBlocks,  // freed blocks are kept and handed out again, one block per range (Torpor-Block, 002)
    kDevice,        // the device itself, each time
  };
  // What is set aside for runs.
  enum class Pool {
    kNone,       // nothing: what runs need is taken when it is needed
    kStatic,     // the whole peak of every plan, while its model is resident
    kHighWater,  // the most that they have needed so far: it grows and never shrinks
    kPredicted,  // what the running plans will need at most in the next interval (004 Algorithm 1)
  };
  Source source = Source::kPartitions;
  Pool pool = Pool::kPredicted;
};
inline constexpr std::string_view kDefaultMemory = "fine-resilient";
[[nodiscard]] std::span<const PolicyEntry<MemoryPolicy>> MemoryPolicies();
// The empty name is the default. NotFound lists the names.
[[nodiscard]] absl::StatusOr<MemoryPolicy> FindMemoryPolicy(std::string_view name);

}  // namespace troupe::gpu
