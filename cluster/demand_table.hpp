// DEMAND TABLE: how much each model is asked for, by the nodes' reports: an average over about the last
// minute that fades by itself. It says what comes first, never what is served. Owned by the placement table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "base/units.hpp"

namespace troupe::cluster {

class DemandTable {
 public:
  explicit DemandTable(Duration half_life = std::chrono::seconds(60)) : half_life_(half_life) {}

  void Add(const std::string& digest, std::uint64_t requests, Time now);
  // Requests, of which those of a half-life ago count half. 0: none for long.
  [[nodiscard]] double Of(const std::string& digest, Time now) const;
  [[nodiscard]] std::size_t size() const { return models_.size(); }

 private:
  struct Entry {
    double requests = 0;
    Time at{};
  };
  [[nodiscard]] double Faded(const Entry& entry, Time now) const;
  // Forgets functions without a request for long.
  void Forget(Time now);

  const Duration half_life_;
  std::map<std::string, Entry> models_;
  Time forgotten_{};
};

}  // namespace troupe::cluster
