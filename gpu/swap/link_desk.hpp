// LINK DESK: both directions of a device's link, and how models come over it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gpu/device/device.hpp"
#include "gpu/swap/groups.hpp"
#include "gpu/swap/link_port.hpp"
#include "gpu/swap/link_probe.hpp"
#include "gpu/swap/swap_policy.hpp"
#include "transport/link_state.hpp"

namespace troupe::gpu {

struct SwapOptions {
  std::string swap{kDefaultSwap};
  std::string sharing{kDefaultLinkSharing};
  Bytes group;           // zero: probed
  Bytes block = MiB(2);  // of link sharing
  std::uint32_t batch = 6;
};

// Owned by the worker for as long as its device; the names have been checked. Made on the main loop's thread
// (the probe blocks it), then as thread-safe as its ports.
class LinkDesk {
 public:
  // How long the probe may take: a worker is ready this much later.
  static constexpr Duration kProbeBudget = std::chrono::milliseconds(150);
  LinkDesk(Device& device, SwapOptions options);

  // From now on the node's other users of these links hear what is wanted of them here, and the other way
  // round: the device passes the links on the same object.
  void Share(const std::shared_ptr<transport::LinkBuckets>& links, const std::string& in,
             const std::string& out);

  [[nodiscard]] LinkPort& in() { return in_; }
  [[nodiscard]] LinkPort& out() { return out_; }
  [[nodiscard]] const SwapPolicy& policy() const { return policy_; }
  [[nodiscard]] const SwapOptions& options() const { return options_; }
  [[nodiscard]] const LinkCurve& curve() const { return curve_; }
  // Whether the groups follow the model's tensors: GroupsOf then needs its description.
  [[nodiscard]] bool needs_model() const { return policy_.cut == SwapPolicy::Cut::kTensors; }
  [[nodiscard]] std::vector<Group> GroupsOf(Bytes weights, const proto::Model* model) const;

 private:
  const SwapOptions options_;
  const SwapPolicy policy_;
  const LinkCurve curve_;
  LinkPort in_;
  LinkPort out_;
};

}  // namespace troupe::gpu
