// PLACEMENT BOARD: which node holds a host copy of which model, which copies are being made, and what to ask
// for next. Keeps the facts; the plan is cluster::PlanPlacement's. Owned by the cluster manager.
//
//   a copy:  absent -> asked -> held -> (disowned) absent;  asked -> absent (failed; asked again after
//   `retry`)
#pragma once

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

  // What to ask of nodes now; adoptions count as asked with this.
  [[nodiscard]] std::vector<cluster::PlacementMove> Plan(const cluster::FunctionTable& functions,
                                                         const cluster::MembershipTable& members, Time now);
  // Problems of the last plan: models with fewer copies than wanted, and why.
  [[nodiscard]] const std::vector<cluster::PlacementProblem>& problems() const { return problems_; }
  [[nodiscard]] std::vector<std::string> HoldersOf(const std::string& digest) const;
  [[nodiscard]] bool BeingAdopted(const std::string& digest) const;
  [[nodiscard]] std::vector<proto::PlacementRecord> Records() const;
  // OK when some node of the cluster could hold and run the model, or when there is no node yet.
  [[nodiscard]] static absl::Status CheckFits(const proto::FunctionRecord& function,
                                              const cluster::MembershipTable& members);

 private:
  using Copy = std::pair<std::string, std::string>;  // digest, node
  const std::uint32_t replicas_;
  const Duration retry_;
  cluster::PlacementMap held_;
  std::set<Copy> asked_;
  std::map<Copy, Time> not_before_;
  std::vector<cluster::PlacementProblem> problems_;
};

}  // namespace troupe::actors
