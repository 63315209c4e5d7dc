// WIRE WATCH: what the network sees of epochs, and what must hold of that: each join gets an epoch above all
// before; a heartbeat of an older life is not known; a node serves no request that names another epoch than
// the one it last told of itself. A tap: it sees what was sent, before anybody changes it on its way.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "proto/cluster.pb.h"
#include "proto/request.pb.h"
#include "sim/network.hpp"

namespace troupe::sim {

class WireWatch final : public NetworkTap {
 public:
  void Sent(const Passage& passage, const caf::message& content) override;
  void Arrives(const Passage& passage, caf::message& content) override;
  // A line for each rule that was broken.
  [[nodiscard]] const std::vector<std::string>& broken() const { return broken_; }
  // Requests of an epoch that was over when they came to their node.
  [[nodiscard]] std::uint64_t stale() const { return stale_; }
  // A planted error: from now on nodes see their own epoch in each request, whatever it named.
  void HideStaleEpochs() { plants_.hide_epochs = true; }
  // The same: a node that is to take over states hears of no image of them.
  void HideImages() { plants_.hide_images = true; }
  // The same: a node that is to keep a copy of a state drops what it has.
  void DropCopies() { plants_.drop_copies = true; }
  // The same: nodes hear of no removal of this function, and take each of its deployments for the first one, whichever a request means.
  void HideRemovals(const std::string& function) { plants_.without_removals = function; }

 private:
  using Call = std::pair<std::uint64_t, std::uint64_t>;  // the asker, and the number of its request
  void GaveEpoch(const Passage& passage, std::uint64_t epoch);
  void HideRemovalsIn(proto::ClusterUpdate& update);

  std::uint64_t last_epoch_ = 0;
  std::map<std::string, std::uint64_t> given_;  // by member
  std::map<std::string, std::uint64_t> told_;   // by node
  std::map<Call, std::string> stale_calls_;     // that came to a node, and what is wrong with them
  std::map<Call, std::string> stale_heartbeats_;
  std::uint64_t stale_ = 0;
  // Planted errors; no function: none.
  struct {
    bool hide_epochs = false;
    bool hide_images = false;
    bool drop_copies = false;
    std::string without_removals{};
  } plants_;
  std::map<std::string, std::int64_t> deployed_;  // when the hidden function's versions were first deployed
  std::vector<std::string> broken_;
};

}  // namespace troupe::sim
