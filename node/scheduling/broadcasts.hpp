// BROADCASTS: models that several GPUs of this node take at once: one of them from the host, and the others
// from that one as it comes. Owned by the swap scheduler; pure.
//
//   a broadcast:  gathering (more receivers may join) -(Send)-> sent -(its last receiver Ends)-> over
//
// A GPU takes part in one broadcast at a time, whatever runtimes stand on it: so none waits for another one.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/policy.hpp"
#include "node/names.hpp"
#include "node/request.hpp"

namespace troupe::node {

//   `off`: every GPU takes its models from the host, or from a GPU that has them whole.
//   `burst`: a model that one GPU is loading from the host is sent on to other GPUs.
enum class BroadcastRule { kOff, kBurst };
[[nodiscard]] std::span<const PolicyEntry<BroadcastRule>> BroadcastRules();
[[nodiscard]] absl::StatusOr<BroadcastRule> FindBroadcastRule(std::string_view name);

class Broadcasts {
 public:
  // GPUs of one broadcast at most; beyond them models come from the host.
  static constexpr std::size_t kMembers = 64;
  // A runtime, and the GPU of the node on which it stands.
  struct Member {
    GpuIndex gpu = kNoGpu;
    std::uint32_t device = 0;
  };
  struct Order {
    ModelId model = kNoModel;
    GpuIndex sender = kNoGpu;
    std::vector<GpuIndex> receivers{};
  };

  // Neither of the two takes part in another one, or the sender's gathers for this model.
  [[nodiscard]] bool MayJoin(const Member& sender, const Member& receiver, ModelId model) const;
  // It may.
  void Join(const Member& sender, const Member& receiver, ModelId model);
  // The broadcast is complete, and no GPU joins it any more. Order these.
  [[nodiscard]] std::vector<Order> Send();
  // A receiver has the model, or does not get it any more. No receiver of it: nothing happens.
  void End(GpuIndex receiver, ModelId model);
  // Its worker is gone. What it sent goes on without it, until its receivers end.
  void Lose(GpuIndex gpu);
  [[nodiscard]] std::size_t size() const { return all_.size(); }

 private:
  struct Broadcast {
    ModelId model = kNoModel;
    Member sender{};
    std::vector<Member> receivers{};
    bool sent = false;
  };
  void DropEmpty();
  [[nodiscard]] const Broadcast* Of(std::uint32_t device) const;
  std::vector<Broadcast> all_;  // few: no more than GPUs
};

}  // namespace troupe::node
