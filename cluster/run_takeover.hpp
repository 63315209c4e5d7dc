// RUN TAKEOVER: which gateway goes on with which workflow run whose own is gone. Pure; the cluster manager
// commits each choice before it tells the gateway.
#pragma once

#include <string>
#include <vector>

#include "base/units.hpp"

namespace troupe::cluster {

// An unfinished run that no actor runs.
struct LooseRun {
  std::string run{};
  std::string gateway{};  // that had it, or was told last to go on with it
  bool gone = false;      // that gateway is dead or has left
  Time since{};           // when its actor was lost, or the gateway was told
};
// A gateway that lives and can be told.
struct RunGateway {
  std::string name{};
  std::size_t runs = 0;  // unfinished ones that it has
};
struct Takeover {
  std::string run{};
  std::string gateway{};
};

// A run whose gateway is gone moves at once; one whose gateway may yet say that it has it (it joins again
// after the manager's restart, or has just been told) only after `grace`. Each goes to the gateway with the
// fewest runs, of equal ones to another than the one that failed it. Without a gateway nothing moves.
[[nodiscard]] std::vector<Takeover> PlanTakeovers(const std::vector<LooseRun>& runs,
                                                  std::vector<RunGateway> gateways, Time now, Duration grace);

}  // namespace troupe::cluster
