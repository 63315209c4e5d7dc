// The routers that said hello to this node, with their credits. Owned by the node controller.
#pragma once

#include <caf/actor_addr.hpp>
#include <caf/actor_cast.hpp>
#include <cstdint>
#include <map>

#include "actors/interfaces/node_controller.hpp"
#include "node/requests/credit_ledger.hpp"

namespace troupe::actors {

// What a router was told last: revisions, 0 for nothing yet.
struct Told {
  std::uint64_t served = 0;     // of ServedModels
  std::uint64_t residency = 0;  // of the GPUs' models
};

class RouterLinks {
 public:
  // True when the router was not known: monitor it.
  bool Add(std::uint64_t id, const CreditSinkActor& router) {
    const bool is_new = !routers_.contains(id);
    routers_[id] = router;
    return is_new;
  }
  // The id of the router behind a DOWN, forgotten with its credits; 0 when it was none.
  std::uint64_t Remove(const caf::actor_addr& address) {
    for (auto it = routers_.begin(); it != routers_.end(); ++it) {
      if (caf::actor_cast<caf::actor_addr>(it->second) != address) continue;
      const auto id = it->first;
      ledger_.Forget(id);
      told_.erase(id);
      routers_.erase(it);
      return id;
    }
    return 0;
  }
  [[nodiscard]] const CreditSinkActor& Find(std::uint64_t id) const { return routers_.at(id); }
  [[nodiscard]] const std::map<std::uint64_t, CreditSinkActor>& all() const { return routers_; }
  [[nodiscard]] node::CreditLedger& ledger() { return ledger_; }
  [[nodiscard]] Told& told(std::uint64_t id) { return told_[id]; }
  // This node has a new life: whoever knew something of it forgets that.
  void TellAll() { told_.clear(); }
  void Clear() { routers_.clear(); }

 private:
  std::map<std::uint64_t, CreditSinkActor> routers_;
  std::map<std::uint64_t, Told> told_;
  node::CreditLedger ledger_;
};

}  // namespace troupe::actors
