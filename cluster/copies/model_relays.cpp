#include "cluster/copies/model_relays.hpp"

#include <algorithm>

namespace troupe::cluster {

const ModelRelays::Fetch* ModelRelays::Find(const Fetches& fetches, const std::string& node) {
  const auto found = std::ranges::find(fetches, node, &Fetch::node);
  return found == fetches.end() ? nullptr : &*found;
}

// A node that began its fetch anew may be followed by others since before.
bool ModelRelays::WaitsFor(const Fetches& fetches, const Fetch& fetch, const std::string& node) {
  const Fetch* at = &fetch;
  // A chain has no more nodes than there are fetches.
  for (std::size_t i = 0; i <= fetches.size() && at != nullptr; ++i) {
    if (at->follows == node) return true;
    at = Find(fetches, at->follows);
  }
  return false;
}

std::optional<std::string> ModelRelays::EndOfAChain(const Fetches& fetches, const std::string& node) {
  for (const auto& fetch : fetches) {
    const bool followed =
        std::ranges::any_of(fetches, [&](const Fetch& other) { return other.follows == fetch.node; });
    if (!followed && !WaitsFor(fetches, fetch, node)) return fetch.node;
  }
  return std::nullopt;
}

std::optional<std::string> ModelRelays::Begin(const std::string& digest, const std::string& node,
                                              std::size_t holders) {
  auto& fetches = models_[digest];
  std::erase_if(fetches, [&](const Fetch& fetch) { return fetch.node == node; });
  // What follows a node that has the model by now has the link of a holder.
  const auto from_holders = static_cast<std::size_t>(std::ranges::count_if(
      fetches, [&](const Fetch& fetch) { return Find(fetches, fetch.follows) == nullptr; }));
  std::optional<std::string> follows;
  if (from_holders >= std::max<std::size_t>(holders, 1)) follows = EndOfAChain(fetches, node);
  fetches.push_back({node, follows.value_or(std::string())});
  return follows;
}

void ModelRelays::Over(const std::string& digest, const std::string& node) {
  const auto found = models_.find(digest);
  if (found == models_.end()) return;
  std::erase_if(found->second, [&](const Fetch& fetch) { return fetch.node == node; });
  if (found->second.empty()) models_.erase(found);
}

void ModelRelays::NodeGone(const std::string& node) {
  for (auto& [digest, fetches] : models_)
    std::erase_if(fetches, [&](const Fetch& fetch) { return fetch.node == node; });
  std::erase_if(models_, [](const auto& model) { return model.second.empty(); });
}

std::size_t ModelRelays::fetches() const {
  std::size_t sum = 0;
  for (const auto& [digest, fetches] : models_) sum += fetches.size();
  return sum;
}

}  // namespace troupe::cluster
