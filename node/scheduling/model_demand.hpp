// How much a model is asked for, and what its copies on the GPUs are worth: the seconds for which its
// requests wait. Plain numbers; the swap scheduler owns them.
#pragma once

#include <cstdint>

#include "base/units.hpp"

namespace troupe::node {

// Of what comes now and then: how much of it a second, over the last minute, what is longer ago weighing
// less; and since the first of it, when that is less.
class RecentRate {
 public:
  static constexpr Duration kMemory = std::chrono::seconds(60);
  // One request alone does not make a rate: it counts as one in this time.
  static constexpr Duration kShortest = std::chrono::seconds(15);

  void Add(double amount, Time now);
  [[nodiscard]] double At(Time now) const;

 private:
  double sum_ = 0;
  Time first_ = Time::max();  // nothing came yet
  Time last_{};
};

struct ModelDemand {
  double rate = 0;   // requests a second
  Duration run{};    // of one with its model there
  Duration bring{};  // what one waits when no GPU has the model
};

// For how many seconds the requests of one second wait, when `copies` GPUs have their model and GPUs compute
// for this share of the time. They find a copy busy as often as GPUs are, or as often as they keep it busy
// themselves; all copies at once more seldom the more there are; and then wait for the first that is free, as
// behind several servers. None waits longer than the model takes to come.
[[nodiscard]] double WaitingWith(const ModelDemand& demand, std::uint32_t copies, double busy);

}  // namespace troupe::node
