// NODE METERS: the meter pages and the usage files of the nodes of a chaos cluster, and what a machine that lost its
// memory or its disk took with it of what had been counted.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "actors/seams/fake_meters.hpp"
#include "proto/usage.pb.h"
#include "sim/checkers/usage_check.hpp"
#include "sim/world.hpp"

namespace troupe::sim {

class NodeMeters {
 public:
  explicit NodeMeters(World& world) : world_(world) {}

  // Makes a node that is started for the first time meter. Of two nodes the second one's clock is an hour ahead.
  void Begin(const std::string& name, World::NodePlan& plan);
  // Before a node that was killed is started again.
  void Restart(const std::string& name, World::Kept kept);
  // What each function should have been charged by now, when everything was told.
  [[nodiscard]] std::map<std::string, ExpectedUsage> Expected() const;
  // A planted error: from now on a daemon that starts again does not know what it has read.
  void ForgetPages() { forgets_ = true; }

 private:
  struct Machine {
    std::shared_ptr<actors::FakeMeters> meters = std::make_shared<actors::FakeMeters>();
    proto::NodeUsage file{};  // as it lies on the disk
    std::uint64_t ledgers = 0;
    std::map<std::string, proto::UsageAmount> lost{}, unsure{};
  };
  void NewLedger(const std::string& name, Machine& machine);
  static void LosePages(Machine& machine);
  static void LoseFile(Machine& machine);

  World& world_;
  std::map<std::string, std::shared_ptr<Machine>> machines_;
  bool forgets_ = false;
};

}  // namespace troupe::sim
