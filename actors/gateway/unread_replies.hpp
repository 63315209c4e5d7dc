// UNREAD REPLIES: answers that callers were given whose outputs still lie at nodes: each until its caller has read it, or is
// gone, and until the node has heard that. Owned by the router.
#pragma once

#include <caf/actor_addr.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"

namespace troupe::actors {

class UnreadReplies {
 public:
  // `caller`: null for a thread. True: it has none yet, so that its end is to be watched from now on.
  bool Add(std::uint64_t ticket, std::string node, const caf::actor_addr& caller) {
    replies_[ticket] = {std::move(node), caller};
    if (!caller) return false;
    const auto [watched, added] = callers_.try_emplace(caller);
    watched->second.insert(ticket);
    return added;
  }
  [[nodiscard]] bool Has(std::uint64_t ticket) const { return replies_.contains(ticket); }
  // The node that has the outputs; nothing: they were read before.
  std::optional<std::string> Take(std::uint64_t ticket) {
    auto taken = replies_.extract(ticket);
    if (taken.empty()) return std::nullopt;
    if (const auto caller = callers_.find(taken.mapped().caller); caller != callers_.end())
      caller->second.erase(ticket);
    return std::move(taken.mapped().node);
  }
  // What the caller has not read, and never will: tickets and nodes.
  std::vector<std::pair<std::uint64_t, std::string>> TakeOf(const caf::actor_addr& caller) {
    std::vector<std::pair<std::uint64_t, std::string>> taken;
    auto watched = callers_.extract(caller);
    if (watched.empty()) return taken;
    for (const auto ticket : watched.mapped())
      taken.emplace_back(ticket, std::move(replies_.extract(ticket).mapped().node));
    return taken;
  }

  // The node is told that the outputs of this ticket are read, or are not wanted any more; again with each hello until it has
  // answered one.
  void Released(const std::string& node, std::uint64_t ticket) {
    released_[node].emplace(++releases_, ticket);
  }
  struct ToTell {
    std::vector<std::uint64_t> tickets{};
    std::uint64_t last_release = 0;  // for Heard
  };
  [[nodiscard]] ToTell ReleasedAt(const std::string& node) const {
    ToTell told{.last_release = releases_};
    if (const auto found = released_.find(node); found != released_.end())
      for (const auto& [release, ticket] : found->second) told.tickets.push_back(ticket);
    return told;
  }
  // It has answered a hello that named what was released up to that.
  void Heard(const std::string& node, std::uint64_t last_release) {
    const auto found = released_.find(node);
    if (found == released_.end()) return;
    found->second.erase(found->second.begin(), found->second.upper_bound(last_release));
    if (found->second.empty()) released_.erase(found);
  }
  // The nodes for which this is true are told nothing any more.
  void ForgetIf(absl::FunctionRef<bool(const std::string& node)> gone) {
    std::erase_if(released_, [&](const auto& released) { return gone(released.first); });
  }

 private:
  struct Reply {
    std::string node;
    caf::actor_addr caller;
  };
  std::map<std::uint64_t, Reply> replies_;  // by ticket
  std::map<caf::actor_addr, std::set<std::uint64_t>>
      callers_;  // whose end is watched, and what they have not read
  std::uint64_t releases_ = 0;
  std::map<std::string, std::map<std::uint64_t, std::uint64_t>>
      released_;  // by node: tickets, by when they were released
};

}  // namespace troupe::actors
