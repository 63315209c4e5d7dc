// CREDIT LEDGER: how many requests each router may have in flight at this node. Owned by the node controller.
// Sum of the grants = capacity (GPUs that work x credits per GPU); a router with nothing waiting
// holds one, as far as they go, and the rest follows the routers' queues. A draining node grants nothing.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace troupe::node {

struct RouterDemand {
  std::uint64_t router = 0;
  std::uint64_t demand = 0;  // waiting at the router + in flight here
};
struct Grant {
  std::uint64_t router = 0;
  std::uint64_t limit = 0;
  bool operator==(const Grant&) const = default;
};

// Pure: in the order of router ids; the limits sum to `capacity` unless there is no router. Each gets at
// least one where capacity allows (else the routers with the largest demand do); the rest in proportion to
// demand, largest remainder first, and what no demand asks for in equal parts.
[[nodiscard]] std::vector<Grant> SplitCredits(std::uint64_t capacity, std::vector<RouterDemand> routers);

class CreditLedger {
 public:
  void SetCapacity(std::uint64_t capacity) { capacity_ = capacity; }
  // A router said hello, or how much waits at it.
  void Report(std::uint64_t router, std::uint64_t queued);
  // It is gone, until it reports again. What it has in flight still comes back.
  void Forget(std::uint64_t router);
  // Takes a credit; false: the router is unknown or has used its grant (bounce the request).
  [[nodiscard]] bool Take(std::uint64_t router);
  void Return(std::uint64_t router);
  // Splits anew and gives the grants that changed since the last call; `again` names a router that gets its
  // grant in any case (it just said hello).
  [[nodiscard]] std::vector<Grant> Regrant(std::uint64_t again = 0);
  [[nodiscard]] std::uint64_t limit(std::uint64_t router) const;
  [[nodiscard]] std::uint64_t in_flight(std::uint64_t router) const;
  [[nodiscard]] std::uint64_t capacity() const { return capacity_; }

 private:
  struct Router {
    std::uint64_t queued = 0;
    std::uint64_t in_flight = 0;
    std::uint64_t limit = 0;
    bool told = false;
    bool gone = false;
  };
  std::uint64_t capacity_ = 0;
  std::map<std::uint64_t, Router> routers_;
};

}  // namespace troupe::node
