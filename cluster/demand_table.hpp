// DEMAND TABLE: how much each model is asked for: an average over about the last minute that fades by itself.
// It says what comes first, never what is served. The manager's placement table has one by the nodes' reports,
// and each node has one by the requests that come to it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "base/units.hpp"

namespace troupe::cluster {

// `Model`: what a model is known by, its digest or a number.
template <class Model = std::string>
class DemandTable {
 public:
  explicit DemandTable(Duration half_life = std::chrono::seconds(60)) : half_life_(half_life) {}

  void Add(const Model& model, std::uint64_t requests, Time now) {
    if (now - forgotten_ >= half_life_) Forget(now);
    Entry& entry = models_[model];
    entry = {Faded(entry, now) + static_cast<double>(requests), now};
  }
  // Requests, of which those of a half-life ago count half. 0: none for long.
  [[nodiscard]] double Of(const Model& model, Time now) const {
    const auto it = models_.find(model);
    return it == models_.end() ? 0 : Faded(it->second, now);
  }
  [[nodiscard]] std::size_t size() const { return models_.size(); }

 private:
  static constexpr double kNothing = 0.01;  // of a request
  struct Entry {
    double requests = 0;
    Time at{};
  };
  [[nodiscard]] double Faded(const Entry& entry, Time now) const {
    const Duration age = std::max(now - entry.at, Duration::zero());
    return entry.requests *
           std::exp2(-static_cast<double>(age.count()) / static_cast<double>(half_life_.count()));
  }
  // Forgets models without a request for long.
  void Forget(Time now) {
    forgotten_ = now;
    absl::erase_if(models_, [&](const auto& entry) { return Faded(entry.second, now) < kNothing; });
  }

  const Duration half_life_;
  absl::flat_hash_map<Model, Entry> models_;
  Time forgotten_{};
};

}  // namespace troupe::cluster
