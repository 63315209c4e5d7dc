// SENDINGS: which replies are due, and from which node: the credit of a request that was sent comes back with
// its reply, also when nothing waits for that any more.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/units.hpp"

namespace troupe::cluster {

class Sendings {
 public:
  struct Sending {
    std::uint64_t sequence = 0;  // of the request
    std::string node{};
    std::optional<std::uint32_t> gpu{};  // of the node, that the request names
    Duration work{};                     // that it was expected to take of the node's GPUs when it was sent
  };

  // The ticket that the reply will name.
  std::uint64_t Add(Sending sending) {
    sendings_[next_] = std::move(sending);
    return next_++;
  }
  // Nothing: its node was lost, and what it held was sent anew.
  [[nodiscard]] std::optional<Sending> Take(std::uint64_t ticket) {
    auto sending = sendings_.extract(ticket);
    if (sending.empty()) return std::nullopt;
    return std::move(sending.mapped());
  }
  // The requests whose replies a lost node owes, in the order in which they were sent.
  [[nodiscard]] std::vector<std::uint64_t> TakeOf(const std::string& node) {
    std::vector<std::uint64_t> lost;
    std::erase_if(sendings_, [&](const auto& sending) {
      if (sending.second.node != node) return false;
      lost.push_back(sending.second.sequence);
      return true;
    });
    return lost;
  }
  struct InFlight {
    std::uint64_t requests = 0;
    Duration work{};
  };
  [[nodiscard]] std::map<std::string, InFlight> SumByNode() const {
    std::map<std::string, InFlight> sums;
    for (const auto& [ticket, sending] : sendings_) {
      ++sums[sending.node].requests;
      sums[sending.node].work += sending.work;
    }
    return sums;
  }

 private:
  std::map<std::uint64_t, Sending> sendings_;  // by ticket
  std::uint64_t next_ = 1;
};

}  // namespace troupe::cluster
