// OPERATOR LINKS: the connections over which operators command a cluster, one for each operator.
#pragma once

#include <caf/all.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/interfaces/cluster_manager.hpp"
#include "sim/chaos/agenda.hpp"
#include "sim/world.hpp"

namespace troupe::sim {

// What an operator hears of its command. Not sent: there was no connection, so that it was not done.
struct AdminResult {
  bool sent = false;
  std::optional<proto::AdminReply> reply;  // empty: none in time, or the connection was lost
};

class OperatorLinks {
 public:
  // Both outlive the links.
  OperatorLinks(World& world, Agenda& agenda) : world_(world), agenda_(agenda) {}

  void Connect(const std::string& name);
  void Clear();
  void Admin(std::size_t of, proto::AdminRequest request, Duration timeout,
             std::function<void(AdminResult)> done);
  // A planted error: from the next list of functions.
  void HideAFunction() { hides_ = true; }
  // And this: from the next list that has stages of models, the last of these.
  void HideAStage() { hides_stage_ = true; }

 private:
  struct Link {
    actors::ClusterManagerActor manager;
    caf::actor watcher;
  };

  World& world_;
  Agenda& agenda_;
  std::vector<std::shared_ptr<Link>> links_;
  void Hide(proto::AdminReply& reply);

  bool hides_ = false, hides_stage_ = false;
};

}  // namespace troupe::sim
