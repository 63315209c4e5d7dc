// COPIES: which node is asked to hold a host copy of which model, or to give one up; and where the state of
// functions is kept. It keeps its facts in the placement table.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cluster/copies/model_relays.hpp"
#include "cluster/copies/placement_table.hpp"
#include "cluster/events.hpp"
#include "cluster/records/after_commit.hpp"

namespace troupe::cluster {

struct Parts;

// A function that was deployed, and is answered when the first node has adopted its model.
struct Deployed {
  Ask ask = 0;
  proto::FunctionRecord record{};
};

class Copies {
 public:
  explicit Copies(Parts& parts);

  void Start();
  void On(const AdoptionAnswered& event);
  void On(const PlacesAsked& event);
  // Asks for what the plan wants by now.
  void Place();
  void NodeJoined(const std::string& node, const std::vector<std::string>& adopted) {
    relays_.NodeGone(node);  // what its earlier life fetched
    table_.NodeJoined(node, adopted);
    ForgetTold(node);
  }
  void NodeGone(const std::string& node) {
    table_.NodeGone(node);
    relays_.NodeGone(node);
    ForgetTold(node);
  }
  // What a node had to do for this model since its last heartbeat.
  void Asked(const proto::ModelDemand& demand);
  // The autoscaler wants instances of the model on so many nodes, since the nodes that hold a copy have no room for all.
  void Foreseen(const std::string& digest, std::uint32_t nodes) { table_.Foreseen(digest, nodes); }
  // A function that runs this model was deployed, removed, loaded or unloaded; empty: none was.
  void UsersChanged(const std::string& digest) {
    table_.UsersChanged(digest);
    told_homes_.erase(digest);
  }
  // Deployments::Adopted is called when a node has adopted the model, or could not: now, when a node has it or
  // none is asked.
  void AwaitAdoption(Deployed deployed);
  // The states of the model's functions move: no node is to have it meanwhile.
  void BeginMove(const std::string& digest) {
    table_.BeginMove(digest);
    told_homes_.erase(digest);
  }
  void EndMove(const std::string& digest) { table_.EndMove(digest); }
  // A node that gives states up drops its copy of their model. While no function with state is loaded, the plan does not know of
  // the move, and may want the copy there for others: it is asked for anew.
  void GivesUp(const std::string& digest, const std::string& node) { table_.Disowned(digest, node); }
  // The store has the new home.
  void Moved(const std::string& digest, const std::string& node) { table_.Rebind(digest, node); }
  void On(const HomeStored& stored, const absl::Status& status);

  [[nodiscard]] const PlacementTable& table() const { return table_; }
  // Models with states whose home is not there, as it was told.
  [[nodiscard]] const std::set<std::string>& unreachable() const { return unreachable_; }

 private:
  // New homes of functions' states become durable first: no state begins on a node that the store does not
  // name. The adoptions that wait for that begin then.
  PlacementTable::Homes KeepHomes();
  void Adopt(const std::string& digest, const std::string& node);
  // A home that has the model already, for functions without state, is asked to adopt it for one with state: only then runs
  // that use the state begin there.
  void TellHomes();
  void ForgetTold(const std::string& node) {
    std::erase_if(told_homes_, [&](const auto& told) { return told.second == node; });
  }
  [[nodiscard]] bool Holds(const std::string& node, const std::string& digest) const;
  // Functions whose load needs another number of copies.
  void TellDemanded();
  // Functions whose state is on a node that is not there: once each.
  void TellUnreachable();
  // The node was asked in a life of it that is over.
  void AdoptionLost(const std::string& digest, const std::string& node);
  void AdoptionEnded(const std::string& digest, const absl::Status& status);
  void Disown(const std::string& digest, const std::string& node);
  // The other nodes that have the model and can be asked for it, each time another one first.
  [[nodiscard]] std::vector<const Member*> HoldersFor(const PlacesAsked& event);
  // The node that is still fetching the model, and that the node which asks is to follow; null: it follows none.
  [[nodiscard]] const Member* RelayFor(const PlacesAsked& event, std::size_t holders);

  Parts& parts_;
  PlacementTable table_;
  ModelRelays relays_;
  std::map<std::string, std::string>
      told_homes_;                       // by model digest: the home that was asked to adopt it as such
  std::set<std::string> storing_homes_;  // models whose home is on its way to the store
  std::set<std::string> unreachable_;
  std::multimap<std::string, Deployed> deploying_;  // by model digest
  std::uint64_t located_ = 0;  // questions for places, so that each names another node first
};

}  // namespace troupe::cluster
