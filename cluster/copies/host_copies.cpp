#include "cluster/copies/host_copies.hpp"

#include <algorithm>
#include <utility>

namespace troupe::cluster {

const NodesOfModel* HostCopies::NodesOf(const std::string& digest) const {
  const auto key = DigestKey::Of(digest);
  const auto it = key ? held_.find(*key) : held_.end();
  return it == held_.end() ? nullptr : &it->second;
}

void HostCopies::Hold(const std::string& digest, NodeNumber node) {
  if (const auto key = DigestKey::Of(digest); key && nodes_.Insert(held_[*key], node)) ++held_by_[node];
}

void HostCopies::NodeJoined(const std::string& node, const std::vector<std::string>& adopted) {
  NodeGone(node);
  const auto number = nodes_.Of(node);
  held_by_.resize(nodes_.size());
  for (const auto& digest : adopted) Hold(digest, number);
}

void HostCopies::NodeGone(const std::string& node) {
  ++changes_;
  std::erase_if(asked_, [&](const Copy& copy) { return copy.second == node; });
  std::erase_if(not_before_, [&](const auto& entry) { return entry.first.second == node; });
  const auto number = nodes_.Find(node);
  // A node that comes for the first time costs no look at all models.
  if (!number || std::exchange(held_by_[*number], 0) == 0) return;
  for (auto& [digest, nodes] : held_)
    nodes.erase(std::remove(nodes.begin(), nodes.end(), *number), nodes.end());
  std::erase_if(held_, [](const auto& entry) { return entry.second.empty(); });
}

void HostCopies::Adopted(const std::string& digest, const std::string& node) {
  asked_.erase({digest, node});
  not_before_.erase({digest, node});
  const auto number = nodes_.Of(node);
  held_by_.resize(nodes_.size());
  Hold(digest, number);
  ++changes_;
}

Time HostCopies::Failed(const std::string& digest, const std::string& node, Time now) {
  asked_.erase({digest, node});
  return not_before_[{digest, node}] = now + retry_;
}

void HostCopies::Disowned(const std::string& digest, const std::string& node) {
  asked_.erase({digest, node});
  const auto key = DigestKey::Of(digest);
  const auto it = key ? held_.find(*key) : held_.end();
  if (it == held_.end()) return;
  ++changes_;
  const auto number = nodes_.Find(node);
  const auto at = number ? std::ranges::find(it->second, *number) : it->second.end();
  if (at == it->second.end()) return;
  it->second.erase(at);
  --held_by_[*number];
  if (it->second.empty()) held_.erase(it);
}

bool HostCopies::Ask(const std::string& digest, const std::string& node, Time now) {
  return !MustWait(digest, node, now) && asked_.insert({digest, node}).second;
}

bool HostCopies::MustWait(const std::string& digest, const std::string& node, Time now) const {
  const auto wait = not_before_.find({digest, node});
  return wait != not_before_.end() && wait->second > now;
}

Time HostCopies::AddDue(Time now, std::set<std::string>& due) const {
  auto next = Time::max();
  for (const auto& [copy, at] : not_before_) {
    if (at > now) {
      next = std::min(next, at);
    } else {
      due.insert(copy.first);
    }
  }
  return next;
}

PlacementMap HostCopies::Held() const {
  PlacementMap held;
  for (const auto& [digest, nodes] : held_)
    held.emplace_hint(held.end(), digest.Text(), nodes_.NamesOf(nodes));
  return held;
}

void HostCopies::AddHeld(const std::string& digest, PlacementMap& held) const {
  if (const auto* nodes = NodesOf(digest)) held.insert_or_assign(digest, nodes_.NamesOf(*nodes));
}

std::vector<std::string> HostCopies::HoldersOf(const std::string& digest) const {
  const auto* nodes = NodesOf(digest);
  return nodes == nullptr ? std::vector<std::string>() : nodes_.NamesOf(*nodes);
}

bool HostCopies::HoldsAlone(const std::string& node) const {
  const auto number = nodes_.Find(node);
  if (!number || held_by_[*number] == 0) return false;
  return std::any_of(held_.begin(), held_.end(), [&](const auto& entry) {
    return entry.second.size() == 1 && entry.second.front() == *number;
  });
}

bool HostCopies::BeingAdopted(const std::string& digest) const {
  const auto it = asked_.lower_bound({digest, ""});
  return it != asked_.end() && it->first == digest;
}

}  // namespace troupe::cluster
