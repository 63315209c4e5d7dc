// OWNED GPUS: which functions own a part of which GPUs of this node, as the manager has placed them. Their models stay
// there, and their runs go to no other GPU of the node. Owned by the scheduler's tables.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "node/names.hpp"

namespace troupe::node {

class OwnedGpus {
 public:
  struct Part {
    ModelNumber model{};  // of one of the function's versions
    std::uint32_t device = 0;
    std::uint32_t instances = 0;
    std::uint32_t quotas = 0;  // of all of these, percent of a window
    std::uint32_t area = 0;    // of all of these, each its quota by its percent of the SMs
    // What each run counts with where the instances differ: together the runs take what the instances own.
    [[nodiscard]] std::uint32_t MeanQuota() const { return (quotas + instances - 1) / instances; }
    [[nodiscard]] std::uint32_t MeanSms() const { return quotas == 0 ? 100 : std::max(area / quotas, 1U); }
  };

  // Replaces what all versions of the function own; nothing: they are bound late.
  void Set(const FunctionNumber& function, std::vector<Part> parts) {
    if (parts.empty()) {
      owners_.erase(function);
    } else {
      owners_[function] = std::move(parts);
    }
  }
  [[nodiscard]] bool empty() const { return owners_.empty(); }

  // The function owns a part of some GPU for runs of this model.
  [[nodiscard]] bool Owns(const FunctionNumber& function, const ModelNumber& model) const {
    const auto owner = owners_.find(function);
    return owner != owners_.end() &&
           std::ranges::any_of(owner->second, [&](const Part& part) { return part.model == model; });
  }
  // False: it owns parts of GPUs for runs of this model, and none of this one.
  [[nodiscard]] bool MayRun(const FunctionNumber& function, const ModelNumber& model,
                            std::uint32_t device) const {
    return !Owns(function, model) || InstancesOn(function, model, device) > 0;
  }
  // 0: it owns no part of the device.
  [[nodiscard]] std::uint32_t InstancesOn(const FunctionNumber& function, const ModelNumber& model,
                                          std::uint32_t device) const {
    const Part* part = PartOn(function, model, device);
    return part == nullptr ? 0 : part->instances;
  }
  // Null: it owns no part of the device.
  [[nodiscard]] const Part* PartOn(const FunctionNumber& function, const ModelNumber& model,
                                   std::uint32_t device) const {
    const auto owner = owners_.find(function);
    if (owner == owners_.end()) return nullptr;
    const auto part = std::ranges::find_if(
        owner->second, [&](const Part& one) { return one.model == model && one.device == device; });
    return part == owner->second.end() ? nullptr : &*part;
  }
  // Some function owns a part of the device for runs of this model.
  [[nodiscard]] bool Keeps(const ModelNumber& model, std::uint32_t device) const {
    return std::ranges::any_of(owners_, [&](const auto& owner) {
      return std::ranges::any_of(
          owner.second, [&](const Part& part) { return part.model == model && part.device == device; });
    });
  }
  // `visit` is called with each model and each device on which it is to stay.
  template <class Visit>
  void ForEach(const Visit& visit) const {
    for (const auto& [function, parts] : owners_)
      for (const Part& part : parts) visit(part.model, part.device);
  }

 private:
  absl::flat_hash_map<FunctionNumber, std::vector<Part>> owners_;
};

}  // namespace troupe::node
