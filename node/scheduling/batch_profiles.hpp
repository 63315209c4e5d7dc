// BATCH PROFILES: what is known of runs of each size of a batch, by model: which GPUs have a plan for it, what
// such a run takes of their memory, and how long it takes on GPUs of each kind. Pure; owned by the tables of the swap scheduler.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "node/names.hpp"
#include "node/request.hpp"
#include "node/scheduling/policies/batching_policy.hpp"
#include "scheduling/by_kind.hpp"
#include "scheduling/running_estimate.hpp"

namespace troupe::node {

class BatchProfiles {
 public:
  // A worker has made the plan for so many rows, whose runs take so much memory.
  void Prepared(ModelId model, GpuIndex gpu, std::uint32_t rows, Bytes activation);
  // Its worker is gone, with its plans.
  void ForgetGpu(GpuIndex gpu);
  void Forget(ModelId model) { models_.erase(model); }
  // Requests of this model are not joined any more: a run of several could not be divided among them.
  void Refuse(ModelId model);
  // A run with so many rows took so long. The first one of a size, in which its plan meets its memory, does not
  // count; nor do runs of models without prepared sizes. A size that was not used for kForget runs is not
  // believed any more, and tried again: what made it slow may be over.
  void Observe(ModelId model, std::uint32_t rows, Duration computed, KindId kind = 0);

  // Requests of the model may be joined on some GPU.
  [[nodiscard]] bool Joins(ModelId model) const { return models_.contains(model); }
  struct Place {
    GpuIndex gpu = 0;
    KindId kind = 0;
    Bytes one{};   // of a run of one row
    Bytes room{};  // beyond it
  };
  // One row, two, four, ... as long as the GPU has a plan, at most `most` rows, and room: a run's memory beyond
  // that of one row fits into `room`.
  [[nodiscard]] std::vector<BatchSize> SizesOn(ModelId model, const Place& place, std::uint32_t most) const;
  // Zero: not known.
  [[nodiscard]] Bytes ActivationOf(ModelId model, std::uint32_t rows) const;

 private:
  static constexpr std::size_t kSizes = 7;  // 1 to kMostBatch rows
  static constexpr std::uint64_t kForget = 512;
  struct Size {
    Bytes activation{};
    std::vector<GpuIndex> gpus{};  // with a plan; not told of one row, which every GPU prepares
  };
  struct SizeTime {
    RunningEstimate run{};
    std::uint32_t seen = 0;
    bool warm = false;
    std::uint64_t last = 0;  // of the model's runs
  };
  struct Times {  // on one kind
    std::array<SizeTime, kSizes> sizes{};
    std::uint64_t runs = 0;  // of all sizes
  };
  struct Profile {
    std::array<Size, kSizes> sizes{};
    ByKind<Times> times{};
    bool refused = false;
  };
  // kSizes: it is not a power of two, or too large.
  [[nodiscard]] static std::size_t IndexOf(std::uint32_t rows);

  absl::flat_hash_map<ModelId, Profile> models_;
};

}  // namespace troupe::node
