// HOST LINK: the way from the host to the GPUs behind one switch, under virtual time: whatever is on its way
// shares it evenly, so a transfer that begins slows the others and one that ends frees them. Shared by the
// engines of those GPUs; one thread. `in_turns`: in the order of arrival instead, one after the other. Whole
// nanoseconds only: the same on every machine.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "actors/seams/fake_gpu.hpp"
#include "base/units.hpp"
#include "node/topology.hpp"

namespace troupe::sim {

class HostLink {
 public:
  using Ticket = std::uint64_t;
  explicit HostLink(bool in_turns = false) : in_turns_(in_turns) {}
  // `alone`: what the transfer takes when nothing else is on its way. `timer` is the asker's: Leave before it
  // goes away.
  Ticket Begin(Duration alone, Time now, actors::FakeGpu::Timer timer, std::function<void(Time)> done);
  void Leave(Ticket ticket);
  [[nodiscard]] std::size_t on_the_way() const { return transfers_.size(); }
  // Altogether with at least one transfer.
  [[nodiscard]] Duration busy() const { return busy_; }

 private:
  struct Transfer {
    Duration left{};
    Time due{};
    actors::FakeGpu::Timer timer;
    std::function<void(Time)> done;
  };
  void Advance(Time now);
  void Arm(Time now);
  void Due(Ticket ticket, Time at);

  const bool in_turns_;
  std::map<Ticket, Transfer> transfers_;  // in the order of arrival
  Ticket next_ = 1;
  Time last_{};
  Duration busy_{};
};

// Of the GPUs of a node: those behind one switch have one link.
[[nodiscard]] std::vector<std::shared_ptr<HostLink>> LinksOf(const node::Topology& topology,
                                                             std::uint32_t gpus);

}  // namespace troupe::sim
