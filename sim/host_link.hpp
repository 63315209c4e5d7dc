// HOST LINK: the way from the host to the GPUs behind one switch, under virtual time, shared by one of the
// product's rules (gpu/swap/swap_policy.hpp): `shared`: evenly among all transfers on their way, so a
// transfer that begins slows the others and one that ends frees them; `deadline`: the most urgent transfer
// has it, equals evenly, and one that comes with an earlier deadline goes before; `exclusive`: in the order
// of arrival, one after the other. Shared by the engines of those GPUs; one thread. Whole nanoseconds only:
// the same on every machine.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "actors/seams/fake_gpu.hpp"
#include "base/units.hpp"
#include "gpu/swap/swap_policy.hpp"
#include "node/scheduling/topology.hpp"

namespace troupe::sim {

class HostLink {
 public:
  using Ticket = std::uint64_t;
  explicit HostLink(gpu::LinkSharing sharing = gpu::LinkSharing::kShared) : sharing_(sharing) {}
  // `alone`: what the transfer takes when nothing else is on its way. `deadline`: of the request that waits
  // for it. `timer` is the asker's: Leave before it goes away.
  Ticket Begin(Duration alone, std::optional<Time> deadline, Time now, actors::FakeGpu::Timer timer,
               std::function<void(Time)> done);
  void Leave(Ticket ticket);
  [[nodiscard]] std::size_t on_the_way() const { return transfers_.size(); }
  // Altogether with at least one transfer.
  [[nodiscard]] Duration busy() const { return busy_; }

 private:
  struct Transfer {
    std::int64_t urgency = 0;  // smaller goes first
    Duration left{};
    Time due{};
    actors::FakeGpu::Timer timer;
    std::function<void(Time)> done;
  };
  // The transfers that move now: the most urgent ones.
  [[nodiscard]] std::vector<std::pair<Ticket, Transfer*>> Moving();
  void Advance(Time now);
  void Arm(Time now);
  void Due(Ticket ticket, Time at);

  const gpu::LinkSharing sharing_;
  std::map<Ticket, Transfer> transfers_;  // in the order of arrival
  Ticket next_ = 1;
  Time last_{};
  Duration busy_{};
};

// Of the GPUs of a node: those behind one switch have one link.
[[nodiscard]] std::vector<std::shared_ptr<HostLink>> LinksOf(const node::Topology& topology,
                                                             std::uint32_t gpus, gpu::LinkSharing sharing);

}  // namespace troupe::sim
