// LOST MODELS: the models that a worker held when it died and that no other GPU of the node has, the hottest
// first. A model stays here until it is on a GPU again or is not wanted any more. At most one entry for each
// copy.
#pragma once

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "base/units.hpp"
#include "node/names.hpp"

namespace troupe::node {

struct LostModel {
  ModelNumber copy{};
  Bytes bytes{};      // on a GPU
  double demand = 0;  // lately
  Time last_use{};
};

class LostModels {
 public:
  // Replaces what was known of this copy.
  void Add(LostModel lost) {
    std::erase_if(models_, [&](const LostModel& known) { return known.copy == lost.copy; });
    const auto colder = [](const LostModel& a, const LostModel& b) {
      return std::tie(a.demand, a.last_use, b.copy.text()) < std::tie(b.demand, b.last_use, a.copy.text());
    };
    const auto at = std::lower_bound(models_.begin(), models_.end(), lost, colder);
    models_.insert(at, std::move(lost));
  }
  [[nodiscard]] bool empty() const { return models_.empty(); }
  [[nodiscard]] const LostModel& hottest() const { return models_.back(); }
  LostModel Take() {
    auto taken = std::move(models_.back());
    models_.pop_back();
    return taken;
  }

 private:
  std::vector<LostModel> models_;  // the coldest first
};

}  // namespace troupe::node
