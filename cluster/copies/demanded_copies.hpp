// DEMANDED COPIES: on how many nodes a model's load needs a host copy. Only nodes that have one take the model's
// requests, so that copies bound what the model can be served with.
//
// Load is GPU time by part of the SMs: runs that had half of the SMs for a second come to half a second. The
// number rises at once, with `forecast` before the load does, and falls when the load has needed less for a while. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "cluster/autoscaling/demand_forecast.hpp"
#include "cluster/copies/replica_policy.hpp"
#include "cluster/demand_table.hpp"

namespace troupe::cluster {

class DemandedCopies {
 public:
  // Part of the GPUs of the nodes with a copy that the model's runs may take, before one more node gets one.
  // Runs that wait for busy GPUs show as no more load than those GPUs can have: a model that is short of copies
  // comes to all of it, so that its copies grow by nearly a half at a time.
  static constexpr double kUse = 0.7;
  static constexpr Duration kHalfLife = std::chrono::seconds(5);  // of the load that counts
  static constexpr Duration kHold = std::chrono::seconds(60);     // copies stay for so long without need
  // How far ahead a load is foreseen: by the time in which what it was lately shows it, and a copy comes to a node.
  static constexpr Duration kAhead = std::chrono::seconds(10);
  // Part of what one node may have of the load from which on it is watched: a smaller one cannot need more nodes so soon.
  static constexpr double kWatched = 0.25;

  explicit DemandedCopies(ReplicaPolicy policy) : policy_(policy) {}
  // Runs of the model had a GPU for so long since the last time.
  void Ran(const std::string& digest, Duration gpu_time, Time now);
  // The autoscaler wants instances on so many nodes. The next update counts it as a load that needs as many copies.
  void Foreseen(const std::string& digest, std::uint32_t nodes);
  // Models whose number is another than it was at the last call. `gpus`: of a node, on average.
  const std::vector<std::string>& Update(double gpus, Time now);
  // What the last update found.
  [[nodiscard]] const std::vector<std::string>& changed() const { return changed_; }
  // Copies that the model's load needs; 1 for a model whose load is that of one node or less.
  [[nodiscard]] std::uint32_t Of(const std::string& digest) const;

 private:
  static constexpr Duration kLook =
      std::chrono::seconds(1);  // between two looks at models that have more copies
  struct Copies {
    std::uint32_t now = 1;
    std::uint32_t since_below = 1;  // the most that were needed since `below` began
    Time below{};                   // since when fewer are needed; zero: they are not
  };
  // GPUs that the model's runs had on average, lately.
  [[nodiscard]] double LoadOf(const std::string& digest, Time now) const;
  // Returns `load`, or with the policy `forecast` the load that is expected kAhead later, if that is higher.
  [[nodiscard]] double Expected(const std::string& digest, double load, double of_a_node, Time now);
  // True when the number has changed.
  static bool Follow(Copies& copies, std::uint32_t needed, Time now);

  const ReplicaPolicy policy_;
  DemandTable<> busy_{kHalfLife};                  // microseconds of a GPU
  std::set<std::string> ran_;                      // or were foreseen, since the last update
  std::map<std::string, std::uint32_t> foreseen_;  // nodes, since the last update
  std::map<std::string, Copies> more_;             // models that need several, or did lately
  struct Watch {
    DemandForecast forecast{};
    Time observed{};
  };
  std::map<std::string, Watch> watched_;
  std::vector<std::string> changed_;
  Time looked_{};
};

}  // namespace troupe::cluster
