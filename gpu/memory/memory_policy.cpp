#include "gpu/memory/memory_policy.hpp"

namespace troupe::gpu {
namespace {

using Source = MemoryPolicy::Source;
using Pool = MemoryPolicy::Pool;

constexpr PolicyEntry<MemoryPolicy> kPolicies[] = {
    {"fine-resilient",
     "allocated at first use, freed after the last; the runs' pool follows what they will need",
     {Source::kPartitions, Pool::kPredicted}},
    {"fine",
     "allocated at first use, freed after the last; the runs' pool never shrinks",
     {Source::kPartitions, Pool::kHighWater}},
    {"static",
     "the whole peak of every plan is set aside while its model is resident",
     {Source::kPartitions, Pool::kStatic}},
    {"block-cache",
     "freed blocks are kept in one pool and handed out whole",
     {Source::kCachedBlocks, Pool::kNone}},
    {"device-malloc",
     "every range is asked of the device, at the cost of its allocator",
     {Source::kDevice, Pool::kNone}},
};

}  // namespace

std::span<const PolicyEntry<MemoryPolicy>> MemoryPolicies() {
  return kPolicies;
}

absl::StatusOr<MemoryPolicy> FindMemoryPolicy(std::string_view name) {
  return FindPolicy("memory", name.empty() ? kDefaultMemory : name, MemoryPolicies());
}

}  // namespace troupe::gpu
