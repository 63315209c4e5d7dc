// MODEL HOLDERS: which GPUs have each model, so that nothing is read for the others.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "node/names.hpp"
#include "node/request.hpp"

namespace troupe::node {

class ModelHolders {
 public:
  // The GPUs on which a model is loading, resident or running, in order.
  [[nodiscard]] const std::vector<GpuIndex>& Of(ModelId model) const {
    return model < holders_.size() ? holders_[model] : kNone;
  }
  [[nodiscard]] bool Has(ModelId model, GpuIndex gpu) const {
    const std::vector<GpuIndex>& holders = Of(model);
    return std::binary_search(holders.begin(), holders.end(), gpu);
  }
  [[nodiscard]] std::uint32_t Count(ModelId model) const {
    return static_cast<std::uint32_t>(Of(model).size());
  }
  // Some GPU has it, or its worker is about to give it up.
  [[nodiscard]] bool Refers(ModelId model) const {
    return !Of(model).empty() || (model < evicting_.size() && evicting_[model] > 0);
  }
  // Every model that has ever been somewhere is below.
  [[nodiscard]] ModelId end() const { return static_cast<ModelId>(holders_.size()); }

  void Enter(ModelId model, GpuIndex gpu);
  void Leave(ModelId model, GpuIndex gpu) { std::erase(holders_[model], gpu); }
  // One GPU more is about to give the model up, or one less.
  void BeginEvict(ModelId model);
  void EndEvict(ModelId model) { --evicting_[model]; }
  // By model: the GPUs that are about to give it up. May be shorter than end().
  [[nodiscard]] const std::vector<std::uint32_t>& evicting() const { return evicting_; }

 private:
  static inline const std::vector<GpuIndex> kNone{};
  std::vector<std::vector<GpuIndex>> holders_;  // by model; sorted
  std::vector<std::uint32_t> evicting_;         // by model
};

}  // namespace troupe::node
