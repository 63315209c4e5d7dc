// STATE HOMES: a model with a function that keeps state has one node for good, its home. When no function needs
// the state any more the home is given up; the model gets another home only when the node that had it can no
// longer run its functions: the lease of a node that is not heard of goes on for a while.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/units.hpp"
#include "cluster/function_table.hpp"
#include "cluster/membership_table.hpp"

namespace troupe::cluster {

class StateHomes {
 public:
  using Homes = std::map<std::string, std::string>;  // node by model digest

  // `lease`: how long a node that is not heard of may still run the functions whose state it has.
  explicit StateHomes(Duration lease) : lease_(lease) {}

  void Set(Homes homes) { homes_ = std::move(homes); }
  void Bind(const std::string& digest, const std::string& node) {
    homes_[digest] = new_homes_[digest] = node;
  }
  void Unbind(const std::string& digest) { homes_.erase(digest); }
  // Gives up the homes of those of `digests` whose state no function needs any more.
  void Leave(const FunctionTable& functions, const std::set<std::string>& digests);
  void LeaveAll(const FunctionTable& functions);
  // Models that were left may have to wait for a lease; when the first of these ends, Time::max() for none.
  Time AwaitLeases(const MembershipTable& members, Time now);
  // Adds the models that wait no longer to `due`; when the next one does, Time::max() for none.
  Time AddDue(Time now, std::set<std::string>& due);

  [[nodiscard]] bool Has(const std::string& digest) const { return homes_.contains(digest); }
  // Empty: it has none.
  [[nodiscard]] std::string Of(const std::string& digest) const {
    const auto home = homes_.find(digest);
    return home == homes_.end() ? std::string() : home->second;
  }
  [[nodiscard]] bool IsHome(const std::string& node) const {
    return std::any_of(homes_.begin(), homes_.end(), [&](const auto& home) { return home.second == node; });
  }
  [[nodiscard]] const Homes& all() const { return homes_; }
  // The states move from one home to another.
  void BeginMove(const std::string& digest) { moving_.insert(digest); }
  void EndMove(const std::string& digest) { moving_.erase(digest); }
  // A home that the store has already; nothing when no function needs the state any more.
  void Rebind(const std::string& digest, const std::string& node) {
    if (const auto home = homes_.find(digest); home != homes_.end()) home->second = node;
  }
  // No node is to have the model now.
  [[nodiscard]] bool MustWait(const std::string& digest) const {
    return free_at_.contains(digest) || moving_.contains(digest);
  }
  // What was bound, and what was given up, since the last call.
  [[nodiscard]] Homes TakeNew() { return std::exchange(new_homes_, {}); }
  [[nodiscard]] std::vector<std::string> TakeOld() { return std::exchange(old_homes_, {}); }

 private:
  void LeaveOne(const FunctionTable& functions, const std::string& digest);

  const Duration lease_;
  Homes homes_;
  Homes new_homes_;
  std::vector<std::string> old_homes_;
  std::set<std::string> moving_;
  Homes left_;                           // since the last AwaitLeases
  std::map<std::string, Time> free_at_;  // models whose last home may still have them
};

}  // namespace troupe::cluster
