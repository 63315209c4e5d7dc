// UNREAD REPLIES: answers that callers were given whose outputs still lie at nodes: each until its caller has read it, or is
// gone, and until the node has heard that. Owned by the router.
#pragma once

#include <algorithm>
#include <caf/actor_addr.hpp>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe::actors {

class UnreadReplies {
 public:
  // `caller`: null for a thread. True: it has none yet, so that its end is to be watched from now on.
  bool Add(std::uint64_t ticket, std::string node, const caf::actor_addr& caller) {
    replies_[ticket] = {std::move(node), caller};
    return caller && callers_.insert(caller).second;
  }
  [[nodiscard]] bool Has(std::uint64_t ticket) const { return replies_.contains(ticket); }
  // The node that has the outputs; nothing: they were read before.
  std::optional<std::string> Take(std::uint64_t ticket) {
    auto taken = replies_.extract(ticket);
    if (taken.empty()) return std::nullopt;
    return std::move(taken.mapped().node);
  }
  // The node is told that the outputs of this ticket are read, or are not wanted any more; again with each hello until it has answered one.
  void Released(const std::string& node, std::uint64_t ticket) { released_[node].push_back(ticket); }
  [[nodiscard]] const std::vector<std::uint64_t>& ReleasedAt(const std::string& node) {
    return released_[node];
  }
  // It has heard of the first `count`.
  void Heard(const std::string& node, std::ptrdiff_t count) {
    auto& released = released_[node];
    released.erase(released.begin(), released.begin() + std::min(count, std::ssize(released)));
  }
  void Forget(const std::string& node) { released_.erase(node); }
  // What the caller has not read, and never will: tickets and nodes.
  std::vector<std::pair<std::uint64_t, std::string>> TakeOf(const caf::actor_addr& caller) {
    std::vector<std::pair<std::uint64_t, std::string>> taken;
    if (callers_.erase(caller) == 0) return taken;
    for (auto it = replies_.begin(); it != replies_.end();) {
      if (it->second.caller != caller) {
        ++it;
        continue;
      }
      taken.emplace_back(it->first, std::move(it->second.node));
      it = replies_.erase(it);
    }
    return taken;
  }

 private:
  struct Reply {
    std::string node;
    caf::actor_addr caller;
  };
  std::map<std::uint64_t, Reply> replies_;                      // by ticket
  std::set<caf::actor_addr> callers_;                           // whose end is watched
  std::map<std::string, std::vector<std::uint64_t>> released_;  // by node
};

}  // namespace troupe::actors
