#include "cluster/copies/model_relays.hpp"

#include <algorithm>

namespace troupe::cluster {

std::size_t ModelRelays::Chains::FollowersOf(const std::string& node) const {
  const auto found = followers_.find(node);
  return found == followers_.end() ? 0 : found->second;
}

void ModelRelays::Chains::Add(const std::string& node, const std::string& follows) {
  const auto number = next_++;
  fetches_[node] = {number, follows};
  // A node that begins its fetch anew may be followed by others since before.
  behind_ += FollowersOf(node);
  if (FollowersOf(node) == 0) unfollowed_[number] = node;
  if (follows.empty()) return;
  ++followers_[follows];
  if (const auto followed = fetches_.find(follows); followed != fetches_.end()) {
    ++behind_;
    unfollowed_.erase(followed->second.number);
  }
}

void ModelRelays::Chains::Remove(const std::string& node) {
  const auto found = fetches_.find(node);
  if (found == fetches_.end()) return;
  const Fetch fetch = found->second;
  fetches_.erase(found);
  unfollowed_.erase(fetch.number);
  behind_ -= FollowersOf(node);
  if (fetch.follows.empty()) return;
  const auto left = --followers_.at(fetch.follows);
  if (left == 0) followers_.erase(fetch.follows);
  if (const auto followed = fetches_.find(fetch.follows); followed != fetches_.end()) {
    --behind_;
    if (left == 0) unfollowed_[followed->second.number] = fetch.follows;
  }
}

bool ModelRelays::Chains::WaitsFor(const std::string& waiting, const std::string& node) const {
  auto at = fetches_.find(waiting);
  // A chain has no more nodes than there are fetches.
  for (std::size_t i = 0; i <= fetches_.size() && at != fetches_.end(); ++i) {
    if (at->second.follows == node) return true;
    at = fetches_.find(at->second.follows);
  }
  return false;
}

std::optional<std::string> ModelRelays::Chains::EndFor(const std::string& node) const {
  const bool is_followed = FollowersOf(node) > 0;
  for (const auto& [number, end] : unfollowed_)
    if (!is_followed || !WaitsFor(end, node)) return end;
  return std::nullopt;
}

std::optional<std::string> ModelRelays::Begin(const std::string& digest, const std::string& node,
                                              std::size_t holders) {
  auto& chains = models_[digest];
  chains.Remove(node);
  std::optional<std::string> follows;
  if (chains.from_holders() >= std::max<std::size_t>(holders, 1)) follows = chains.EndFor(node);
  chains.Add(node, follows.value_or(std::string()));
  return follows;
}

void ModelRelays::Over(const std::string& digest, const std::string& node) {
  const auto found = models_.find(digest);
  if (found == models_.end()) return;
  found->second.Remove(node);
  if (found->second.size() == 0) models_.erase(found);
}

void ModelRelays::NodeGone(const std::string& node) {
  for (auto& [digest, chains] : models_) chains.Remove(node);
  std::erase_if(models_, [](const auto& model) { return model.second.size() == 0; });
}

std::size_t ModelRelays::fetches() const {
  std::size_t sum = 0;
  for (const auto& [digest, chains] : models_) sum += chains.size();
  return sum;
}

}  // namespace troupe::cluster
