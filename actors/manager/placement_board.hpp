// PLACEMENT BOARD: which node holds a host copy of which model, which copies are being made, and what to ask
// for next. Keeps the facts; the plan is cluster::PlanPlacement's. Owned by the cluster manager.
//
//   a copy:  absent -> asked -> held -> (disowned) absent;  asked -> absent (failed; asked again after
//   `retry`)
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/units.hpp"
#include "cluster/function_table.hpp"
#include "cluster/membership_table.hpp"
#include "cluster/placement.hpp"

namespace troupe::actors {

class PlacementBoard {
 public:
  explicit PlacementBoard(std::uint32_t replicas, Duration retry) : replicas_(replicas), retry_(retry) {}

  // A node joined and says what it holds.
  void NodeJoined(const std::string& node, const std::vector<std::string>& adopted);
  void NodeGone(const std::string& node);
  void Adopted(const std::string& digest, const std::string& node);
  void AdoptFailed(const std::string& digest, const std::string& node, Time now);
  void Disowned(const std::string& digest, const std::string& node);

  // What to ask of nodes now; adoptions count as asked with this. `revision` is that of the functions: while
  // it, the nodes and the copies are what they were, and no retry is due, nothing is planned anew. So it may
  // be called often, with thousands of functions.
  [[nodiscard]] std::vector<cluster::PlacementMove> Plan(const cluster::FunctionTable& functions,
                                                         std::uint64_t revision,
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
  // Problems of the last plan: models with fewer copies than wanted, and why.
  [[nodiscard]] const std::vector<cluster::PlacementProblem>& problems() const { return problems_; }
  [[nodiscard]] std::uint64_t plans() const { return plans_; }
  [[nodiscard]] std::vector<std::string> HoldersOf(const std::string& digest) const;
  [[nodiscard]] bool BeingAdopted(const std::string& digest) const;
  [[nodiscard]] std::vector<proto::PlacementRecord> Records() const;
  // OK when some node of the cluster could hold and run the model, or when there is no node yet.
  [[nodiscard]] static absl::Status CheckFits(const proto::FunctionRecord& function,
                                              const cluster::MembershipTable& members);

 private:
  using Copy = std::pair<std::string, std::string>;  // digest, node
  [[nodiscard]] Time NextRetry(Time now) const;
  void BindHomes(const std::vector<cluster::PlacementModel>& models, const std::set<std::string>& with_state,
                 const cluster::PlacementMap& placements);

  const std::uint32_t replicas_;
  const Duration retry_;
  cluster::PlacementMap held_;
  std::set<Copy> asked_;
  std::map<Copy, Time> not_before_;
  Homes homes_;
  Homes new_homes_;
  std::vector<std::string> old_homes_;
  std::vector<cluster::PlacementProblem> problems_;
  // Of the last plan.
  std::uint64_t revision_ = 0;
  std::vector<cluster::PlacementNode> nodes_;
  Time retry_at_{};
  bool changed_ = true;  // copies, since then
  std::uint64_t plans_ = 0;
};

}  // namespace troupe::actors
