// PEER COPIES: models that one GPU of this node copies from another one. The source's worker pins the model
// until the copy has ended.
//
//   asked for -(Answered)-> pinned -(End)-> over        asked for, pinned -(DestinationLost)-> over
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "node/request.hpp"

namespace troupe::node {

// A dispatch whose orders wait. `serial` tells whether it is still its request's current dispatch.
struct HeldStart {
  Dispatch dispatch{};
  std::uint64_t serial = 0;
};

class PeerCopyTable {
 public:
  using Ticket = std::uint64_t;
  struct Copy {
    GpuIndex source = kNoGpu;
    GpuIndex destination = kNoGpu;
    ModelNumber model{};
    std::uint64_t pin = 0;  // its number at the source's worker; 0: the worker has not answered
  };

  Ticket Ask(GpuIndex source, GpuIndex destination, const ModelNumber& model) {
    copies_[++last_].copy = {source, destination, model};
    return last_;
  }
  // The destination's worker hears of the copy when the source has answered: what else it is to do with the
  // model has to wait as long. False: nothing was asked for, and `start` is not kept.
  bool Await(GpuIndex destination, const ModelNumber& model, const HeldStart& start) {
    for (auto& [ticket, entry] : copies_) {
      if (entry.copy.pin != 0 || entry.copy.destination != destination || entry.copy.model != model) continue;
      entry.waiting.push_back(start);
      return true;
    }
    return false;
  }
  // The source has pinned the model under this number, or (0) has refused, which ends the copy. Returns what
  // waited, in order; nothing when the destination was lost meanwhile: then the pin has to be released now.
  std::optional<std::vector<HeldStart>> Answered(Ticket ticket, std::uint64_t pin) {
    const auto it = copies_.find(ticket);
    if (it == copies_.end()) return std::nullopt;
    auto waiting = std::exchange(it->second.waiting, {});
    it->second.copy.pin = pin;
    if (pin == 0) copies_.erase(it);
    return waiting;
  }
  // The copy has ended: the pin to release, unless that was done before.
  std::optional<Copy> End(Ticket ticket) {
    const auto node = copies_.extract(ticket);
    return node.empty() ? std::nullopt : std::optional(node.mapped().copy);
  }
  // The worker of the destination is gone: the pins to release now.
  std::vector<Copy> DestinationLost(GpuIndex destination) {
    std::vector<Copy> pinned;
    std::erase_if(copies_, [&](const auto& entry) {
      if (entry.second.copy.destination != destination) return false;
      if (entry.second.copy.pin != 0) pinned.push_back(entry.second.copy);
      return true;
    });
    return pinned;
  }
  [[nodiscard]] std::size_t size() const { return copies_.size(); }

 private:
  struct Entry {
    Copy copy{};
    std::vector<HeldStart> waiting{};
  };
  std::map<Ticket, Entry> copies_;
  Ticket last_ = 0;
};

}  // namespace troupe::node
