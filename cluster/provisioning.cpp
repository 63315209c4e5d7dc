#include "cluster/provisioning.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace troupe::cluster {

namespace {

using Kind = ProvisionAction::Kind;

bool IsUp(const ProvisionedNode& node) {
  return node.state == proto::MEMBER_ALIVE || node.state == proto::MEMBER_SUSPECT;
}

// Requests for each fit GPU of the nodes that are up, but for `without`; none: zero.
double LoadOf(const std::vector<ProvisionedNode>& nodes, const std::string& without = {},
              std::uint64_t moved = 0) {
  std::uint64_t requests = moved;
  std::uint64_t gpus = 0;
  for (const ProvisionedNode& node : nodes) {
    if (!IsUp(node) || node.name == without) continue;
    requests += node.requests;
    gpus += node.gpus;
  }
  return gpus == 0 ? 0 : static_cast<double>(requests) / static_cast<double>(gpus);
}

}  // namespace

absl::Status CheckProvisioning(const ProvisioningLimits& limits) {
  if (limits.max_nodes > 0 && limits.max_nodes < limits.min_nodes) {
    return absl::InvalidArgumentError(absl::StrCat("at most ", limits.max_nodes, " nodes and at least ",
                                                   limits.min_nodes, ": max-nodes has to be the larger"));
  }
  if (limits.drain_below < 0 || limits.drain_below >= limits.add_above) {
    return absl::InvalidArgumentError(
        absl::StrCat("add-above ", limits.add_above, " and drain-below ", limits.drain_below,
                     ": drain-below has to be the smaller, or nodes would come and go"));
  }
  return absl::OkStatus();
}

std::string Describe(const ProvisionAction& action) {
  if (action.kind == Kind::kAdd) return "add";
  return absl::StrCat(action.kind == Kind::kReplace ? "replace " : "drain ", action.node);
}

std::vector<ProvisionAction> Provisioning::Decide(const std::vector<ProvisionedNode>& nodes, Time now) {
  std::vector<ProvisionAction> actions;
  Replace(nodes, now, actions);
  if (const auto action = ByLoad(nodes, now)) Begin(*action, actions);
  return actions;
}

bool Provisioning::MayTry(const ProvisionAction& action, Time now) const {
  const auto it = attempts_.find(action);
  return it == attempts_.end() || (!it->second.under_way && it->second.not_before <= now);
}

void Provisioning::Begin(const ProvisionAction& action, std::vector<ProvisionAction>& actions) {
  attempts_[action].under_way = true;
  actions.push_back(action);
}

void Provisioning::Replace(const std::vector<ProvisionedNode>& nodes, Time now,
                           std::vector<ProvisionAction>& actions) {
  for (const ProvisionedNode& node : nodes) {
    const ProvisionAction action{Kind::kReplace, node.name};
    if (node.state != proto::MEMBER_DEAD) {
      dead_since_.erase(node.name);
      replaced_.erase(node.name);
      if (const auto it = attempts_.find(action); it != attempts_.end() && !it->second.under_way)
        attempts_.erase(it);
      continue;
    }
    const Time since = dead_since_.try_emplace(node.name, now).first->second;
    if (now - since < limits_.replace_after || replaced_.contains(node.name)) continue;
    if (MayTry(action, now)) Begin(action, actions);
  }
}

std::optional<ProvisionAction> Provisioning::ByLoad(const std::vector<ProvisionedNode>& nodes, Time now) {
  const auto up = static_cast<std::uint32_t>(std::count_if(nodes.begin(), nodes.end(), IsUp));
  const ProvisionAction add{Kind::kAdd, {}};
  const bool adding = attempts_.contains(add) && attempts_.at(add).under_way;
  const double load = LoadOf(nodes);
  if (load <= limits_.add_above) above_since_.reset();
  if (load >= limits_.drain_below) below_since_.reset();
  if (load > limits_.add_above && !above_since_) above_since_ = now;
  if (load < limits_.drain_below && !below_since_) below_since_ = now;
  if (limits_.max_nodes == 0 || adding || now < settled_) return std::nullopt;
  const bool too_few = up > 0 && up < limits_.min_nodes && dead_since_.empty();
  const bool busy = above_since_ && now - *above_since_ >= limits_.hold && up < limits_.max_nodes;
  if (too_few || busy) return MayTry(add, now) ? std::optional(add) : std::nullopt;
  if (!below_since_ || now - *below_since_ < limits_.hold || up <= std::max(1U, limits_.min_nodes))
    return std::nullopt;
  const ProvisionedNode* least = nullptr;
  for (const ProvisionedNode& node : nodes)
    if (IsUp(node) && !node.stays && (least == nullptr || node.requests < least->requests)) least = &node;
  if (least == nullptr) return std::nullopt;
  const ProvisionAction drain{Kind::kDrain, least->name};
  if (LoadOf(nodes, least->name, least->requests) >= limits_.add_above || !MayTry(drain, now))
    return std::nullopt;
  return drain;
}

Duration Provisioning::Ended(const ProvisionAction& action, const absl::Status& status, Time now) {
  Attempt& attempt = attempts_[action];
  attempt.under_way = false;
  if (!status.ok()) {
    const Duration pause =
        std::min(limits_.longest_retry, limits_.first_retry * (1 << std::min(attempt.failures, 10U)));
    ++attempt.failures;
    attempt.not_before = now + pause;
    return pause;
  }
  attempts_.erase(action);
  if (action.kind == Kind::kReplace) {
    replaced_[action.node] = now;
  } else {
    above_since_.reset();
    below_since_.reset();
    settled_ = now + limits_.settle;
  }
  return Duration::zero();
}

}  // namespace troupe::cluster
