#include "cluster/copies/host_copies.hpp"

#include <algorithm>

namespace troupe::cluster {

namespace {

void Insert(std::vector<std::string>& sorted, const std::string& name) {
  const auto at = std::lower_bound(sorted.begin(), sorted.end(), name);
  if (at == sorted.end() || *at != name) sorted.insert(at, name);
}

}  // namespace

void HostCopies::NodeJoined(const std::string& node, const std::vector<std::string>& adopted) {
  NodeGone(node);
  for (const auto& digest : adopted) Insert(held_[digest], node);
  ++changes_;
}

void HostCopies::NodeGone(const std::string& node) {
  ++changes_;
  for (auto& [digest, nodes] : held_) std::erase(nodes, node);
  std::erase_if(held_, [](const auto& entry) { return entry.second.empty(); });
  std::erase_if(asked_, [&](const Copy& copy) { return copy.second == node; });
  std::erase_if(not_before_, [&](const auto& entry) { return entry.first.second == node; });
}

void HostCopies::Adopted(const std::string& digest, const std::string& node) {
  asked_.erase({digest, node});
  not_before_.erase({digest, node});
  Insert(held_[digest], node);
  ++changes_;
}

Time HostCopies::Failed(const std::string& digest, const std::string& node, Time now) {
  asked_.erase({digest, node});
  return not_before_[{digest, node}] = now + retry_;
}

void HostCopies::Disowned(const std::string& digest, const std::string& node) {
  asked_.erase({digest, node});
  const auto it = held_.find(digest);
  if (it == held_.end()) return;
  ++changes_;
  std::erase(it->second, node);
  if (it->second.empty()) held_.erase(it);
}

bool HostCopies::Ask(const std::string& digest, const std::string& node, Time now) {
  const Copy copy{digest, node};
  const auto wait = not_before_.find(copy);
  if (wait != not_before_.end() && wait->second > now) return false;
  return asked_.insert(copy).second;
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

std::vector<std::string> HostCopies::HoldersOf(const std::string& digest) const {
  const auto it = held_.find(digest);
  return it == held_.end() ? std::vector<std::string>() : it->second;
}

bool HostCopies::HoldsAlone(const std::string& node) const {
  return std::any_of(held_.begin(), held_.end(), [&](const auto& entry) {
    return entry.second.size() == 1 && entry.second.front() == node;
  });
}

bool HostCopies::BeingAdopted(const std::string& digest) const {
  const auto it = asked_.lower_bound({digest, ""});
  return it != asked_.end() && it->first == digest;
}

}  // namespace troupe::cluster
