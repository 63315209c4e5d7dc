// PLACEMENT TABLE: which node holds a host copy of which model, which copies are being made, and what to ask
// for next. Keeps the facts; the plan is cluster::PlanPlacement's. Owned by the cluster manager.
//
//   a copy:  absent -> asked -> held
//            held -> absent      the node has disowned it
//            asked -> absent     it failed (and is asked for again after `retry`), or the node has disowned it
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/units.hpp"
#include "cluster/demand_table.hpp"
#include "cluster/function_table.hpp"
#include "cluster/membership_table.hpp"
#include "cluster/placement.hpp"

namespace troupe::actors {

class PlacementTable {
 public:
  // `exclusive_lease`: how long a node that is not heard of may still run the functions whose state it has.
  PlacementTable(std::uint32_t replicas, Duration retry, Duration exclusive_lease = {})
      : replicas_(replicas), retry_(retry), exclusive_lease_(exclusive_lease) {}

  // A node joined and says what it holds.
  void NodeJoined(const std::string& node, const std::vector<std::string>& adopted);
  void NodeGone(const std::string& node);
  void Adopted(const std::string& digest, const std::string& node);
  void AdoptFailed(const std::string& digest, const std::string& node, Time now);
  // It is not to have it, or not any more.
  void Disowned(const std::string& digest, const std::string& node);
  // So many requests came for this model: what is asked for most is moved first.
  void Asked(const std::string& digest, std::uint64_t requests, Time now) {
    demand_.Add(digest, requests, now);
  }

  // A function that runs this model was deployed, removed, loaded or unloaded; empty: none was.
  void UsersChanged(const std::string& digest) {
    if (!digest.empty()) touched_.insert(digest);
  }

  // What to ask of nodes now; adoptions count as asked with this. Only models are planned anew whose users or
  // copies have changed, or whose retry is due; all of them when the nodes have changed, or when the regions
  // are so full that one model takes another's place. So it may be called often, with thousands of functions.
  [[nodiscard]] std::vector<cluster::PlacementMove> Plan(const cluster::FunctionTable& functions,
                                                         const cluster::MembershipTable& members, Time now);
  // Models with a function that keeps state have one node for good, its home: by digest. Given at the start,
  // and chosen by Plan; what it has chosen and what no function needs any more are the caller's to store.
  using Homes = std::map<std::string, std::string>;
  void SetHomes(Homes homes) { homes_ = std::move(homes); }
  [[nodiscard]] Homes TakeNewHomes() { return std::exchange(new_homes_, {}); }
  [[nodiscard]] std::vector<std::string> TakeOldHomes() { return std::exchange(old_homes_, {}); }
  [[nodiscard]] bool HasHome(const std::string& digest) const { return homes_.contains(digest); }
  [[nodiscard]] bool IsAsked(const std::string& digest, const std::string& node) const {
    return asked_.contains({digest, node});
  }
  // It could not be stored: chosen again.
  void Unbind(const std::string& digest);
  // Models with fewer copies than wanted, and why.
  [[nodiscard]] const std::map<std::string, absl::Status>& problems() const { return problems_; }
  // Where the copies are to be.
  [[nodiscard]] cluster::PlacementMap Planned() const;
  [[nodiscard]] std::uint64_t plans() const { return plans_; }
  [[nodiscard]] std::uint64_t full_plans() const { return full_plans_; }  // of them, of all models
  [[nodiscard]] std::vector<std::string> HoldersOf(const std::string& digest) const;
  [[nodiscard]] bool IsHome(const std::string& node) const {
    return std::any_of(homes_.begin(), homes_.end(), [&](const auto& home) { return home.second == node; });
  }
  // Whether some model has its only copy there.
  [[nodiscard]] bool HoldsAlone(const std::string& node) const;
  [[nodiscard]] bool BeingAdopted(const std::string& digest) const;
  // OK when some node of the cluster could hold and run the model, or when there is no node yet.
  [[nodiscard]] static absl::Status CheckFits(const proto::FunctionRecord& function,
                                              const cluster::MembershipTable& members);

 private:
  using Copy = std::pair<std::string, std::string>;  // digest, node
  using Models = std::vector<cluster::PlacementModel>;
  struct Place {
    Bytes bytes{};
    std::vector<std::string> nodes{};
  };
  void TouchDue(Time now);
  // Nothing is wanted of a model that no loaded function runs.
  void AddWanted(const cluster::FunctionTable& functions, const std::string& digest, Models& models) const;
  [[nodiscard]] cluster::PlacementPlan PlanAll(const cluster::FunctionTable& functions);
  // Nothing, when others would have to make room for these.
  [[nodiscard]] std::optional<cluster::PlacementPlan> PlanSome(const cluster::FunctionTable& functions,
                                                               const std::set<std::string>& digests);
  void Take(const Models& models, const cluster::PlacementPlan& plan);
  [[nodiscard]] bool Fits(const Models& models, const cluster::PlacementPlan& plan) const;
  void BindHomes(const Models& models, const cluster::PlacementMap& placements);
  void LeaveHome(const cluster::FunctionTable& functions, const std::string& digest);
  // A state that a node had may run on there until its lease is over: no other node begins it before.
  void AwaitLeases(const cluster::MembershipTable& members, Time now);
  [[nodiscard]] std::vector<cluster::PlacementMove> Ask(std::vector<cluster::PlacementMove> moves, Time now);
  void SortByUrgency(std::vector<cluster::PlacementMove>& moves, Time now) const;

  const std::uint32_t replicas_;
  const Duration retry_;
  const Duration exclusive_lease_;
  cluster::PlacementMap held_;
  cluster::DemandTable demand_;
  std::set<Copy> asked_;
  std::map<Copy, Time> not_before_;
  Homes homes_;
  Homes new_homes_;
  std::vector<std::string> old_homes_;
  Homes left_;                                   // by the last plan
  std::map<std::string, Time> not_anew_before_;  // models whose last home may still have them
  std::map<std::string, absl::Status> problems_;
  std::map<std::string, Place> planned_;
  std::map<std::string, Bytes> used_;  // of each node's region, by planned_
  std::vector<cluster::PlacementNode> nodes_;
  bool tight_ = false;
  // What is to be planned anew.
  std::set<std::string> touched_;
  bool all_ = true;
  Time retry_at_ = Time::max();  // the earliest of not_before_ and not_anew_before_ that is still to come
  std::uint64_t plans_ = 0;
  std::uint64_t full_plans_ = 0;
};

}  // namespace troupe::actors
