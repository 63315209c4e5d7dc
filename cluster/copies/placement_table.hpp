// PLACEMENT TABLE: what to ask of which node next, so that each model has its host copies. It keeps together
// what is known of copies (host_copies.hpp), of homes of states (state_homes.hpp) and of the newest plan
// (planned_regions.hpp), and knows what has to be planned anew; the plan is PlanPlacement's.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "base/units.hpp"
#include "cluster/copies/demanded_copies.hpp"
#include "cluster/copies/digest_key.hpp"
#include "cluster/copies/host_copies.hpp"
#include "cluster/copies/planned_regions.hpp"
#include "cluster/copies/state_homes.hpp"
#include "cluster/demand_table.hpp"
#include "cluster/function_table.hpp"
#include "cluster/membership_table.hpp"
#include "cluster/placement.hpp"

namespace troupe::cluster {

class PlacementTable {
 public:
  using Homes = StateHomes::Homes;

  // `exclusive_lease`: how long a node that is not heard of may still run the functions whose state it has.
  PlacementTable(std::uint32_t replicas, Duration retry, Duration exclusive_lease = {},
                 ReplicaPolicy policy = ReplicaPolicy::kForecast)
      : replicas_(replicas), copies_(retry), homes_(exclusive_lease), demanded_(policy) {}

  // A node joined and says what it holds.
  void NodeJoined(const std::string& node, const std::vector<std::string>& adopted);
  void NodeGone(const std::string& node);
  void Adopted(const std::string& digest, const std::string& node);
  void AdoptFailed(const std::string& digest, const std::string& node, Time now);
  // It is not to have it, or not any more.
  void Disowned(const std::string& digest, const std::string& node);
  // So many requests came for this model, and its runs had GPUs for so long: what is asked for most is moved
  // first, and what its copies cannot serve gets more of them.
  void Asked(const std::string& digest, std::uint64_t requests, Duration gpu_time, Time now) {
    demand_.Add(digest, requests, now);
    demanded_.Ran(digest, gpu_time, now);
  }

  // A function that runs this model was deployed, removed, loaded or unloaded; empty: none was.
  void UsersChanged(const std::string& digest) {
    if (!digest.empty()) anew_.models.insert(digest);
  }

  // Of the models whose place a change of the nodes can change, so many are planned with each plan.
  static constexpr std::size_t kAtOnce = 256;

  // What to ask of nodes now; adoptions count as asked with this. Only models are planned anew whose users or
  // copies have changed, whose retry is due, or whose place a change of the nodes can change: of these kAtOnce at a
  // time, those first that no node holds. All of them are when the regions are so full that one model takes another's
  // place. So it may be called often, with a million functions.
  [[nodiscard]] std::vector<PlacementMove> Plan(const FunctionTable& functions,
                                                const MembershipTable& members, Time now);
  // Homes are given at the start, and chosen by Plan; what it has chosen and what no function needs any more
  // are the caller's to store.
  void SetHomes(Homes homes) { homes_.Set(std::move(homes)); }
  [[nodiscard]] Homes TakeNewHomes() { return homes_.TakeNew(); }
  [[nodiscard]] std::vector<std::string> TakeOldHomes() { return homes_.TakeOld(); }
  [[nodiscard]] bool HasHome(const std::string& digest) const { return homes_.Has(digest); }
  [[nodiscard]] bool IsHome(const std::string& node) const { return homes_.IsHome(node); }
  // The home could not be stored: another is chosen.
  void Unbind(const std::string& digest);
  [[nodiscard]] const StateHomes& homes() const { return homes_; }
  // Where the state of this function, and of others with its model, could move to; empty: to none of the nodes that are not
  // in `without`.
  [[nodiscard]] static std::string OtherHome(const proto::FunctionRecord& function,
                                             const MembershipTable& members,
                                             const std::set<std::string>& without);
  // From the begin to the end of a move no node is to have the model.
  void BeginMove(const std::string& digest) {
    homes_.BeginMove(digest);
    anew_.models.insert(digest);
  }
  void Rebind(const std::string& digest, const std::string& node) { homes_.Rebind(digest, node); }
  void EndMove(const std::string& digest) {
    homes_.EndMove(digest);
    anew_.models.insert(digest);
  }

  // How many copies the load of which models needs, as of the last plan.
  void Foreseen(const std::string& digest, std::uint32_t nodes) { demanded_.Foreseen(digest, nodes); }
  [[nodiscard]] const DemandedCopies& demanded() const { return demanded_; }
  // Models with fewer copies than wanted, and why.
  [[nodiscard]] const std::map<std::string, absl::Status>& problems() const { return problems_; }
  [[nodiscard]] const HostCopies& copies() const { return copies_; }
  // Where the copies are to be.
  [[nodiscard]] PlacementMap Planned() const { return regions_.Planned(); }
  struct Plans {
    std::uint64_t made = 0;
    std::uint64_t of_all_models = 0;  // of them
  };
  [[nodiscard]] const Plans& plans() const { return plans_; }
  // OK when at least one node could hold and run the model, and when the cluster has no node yet.
  [[nodiscard]] static absl::Status CheckFits(const proto::FunctionRecord& function,
                                              const MembershipTable& members);
  // The memory of the largest GPU that is fit; zero: there is none.
  [[nodiscard]] static Bytes LargestGpu(const MembershipTable& members);

 private:
  using Models = std::vector<PlacementModel>;
  void TouchDue(Time now);
  void SetNodes(const MembershipTable& members);
  // Many models are planned in parts from the start on.
  void DivideFirstPlan(const FunctionTable& functions);
  void TouchLater(const DigestKey& model) { (copies_.IsHeld(model) ? anew_.held : anew_.bare).insert(model); }
  void TouchLater(const std::string& digest) {
    if (const auto key = DigestKey::Of(digest)) TouchLater(*key);
  }
  // What is planned now, in the order of digests.
  [[nodiscard]] std::set<std::string> TakeTouched();
  // Nothing is wanted of a model that no loaded function runs.
  void AddWanted(const FunctionTable& functions, const std::string& digest, Models& models) const;
  [[nodiscard]] PlacementPlan PlanAll(const FunctionTable& functions);
  // Nothing when these models do not fit beside the others as planned.
  [[nodiscard]] std::optional<PlacementPlan> PlanSome(const FunctionTable& functions,
                                                      const std::set<std::string>& digests);
  void Take(const Models& models, const PlacementPlan& plan);
  [[nodiscard]] std::vector<PlacementMove> Ask(std::vector<PlacementMove> moves, Time now);
  void SortByUrgency(std::vector<PlacementMove>& moves, Time now) const;

  const std::uint32_t replicas_;
  HostCopies copies_;
  StateHomes homes_;
  PlannedRegions regions_;
  DemandTable<> demand_;
  DemandedCopies demanded_;
  std::map<std::string, absl::Status> problems_;
  bool tight_ = false;  // one model takes another's place
  struct Anew {
    std::set<std::string> models{};
    // Each plan takes kAtOnce models from these two sets, from `bare` first: no node held those when they were touched.
    absl::btree_set<DigestKey> bare{};
    absl::btree_set<DigestKey> held{};
    std::set<std::string> nodes{};  // that joined or went since the newest plan
    bool all = true;                // models
    std::uint64_t members = std::numeric_limits<std::uint64_t>::max();  // the version of the newest plan
    Time retry_at = Time::max();  // the earliest time at which a copy or a home that had to wait need not
  };
  Anew anew_;  // what is to be planned
  Plans plans_;
};

}  // namespace troupe::cluster
