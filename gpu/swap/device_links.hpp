// DEVICE LINKS: both directions of a device's link to the host, its links from other GPUs, and how models come
// over them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
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
  Bytes group;  // zero: probed
  Bytes block;  // of link sharing; zero: by the link's rate
  std::uint32_t batch = 6;
  LinkCurve known{};  // what an earlier worker measured of this link; an elbow of zero: nothing
};

// Blocks in which a link of this rate is shared: each costs the same to begin, so that a fast link has larger ones. Zero:
// the rate is not known.
[[nodiscard]] Bytes BlockFor(BytesPerSecond link);

// Owned by the worker for as long as its device; the names have been checked. Made on the main loop's thread
// (the probe blocks it), then as thread-safe as its ports.
class DeviceLinks {
 public:
  // How long the probe may take: a worker is ready this much later.
  static constexpr Duration kProbeBudget = std::chrono::milliseconds(150);
  DeviceLinks(Device& device, SwapOptions options);

  // The names of a device's links.
  struct Names {
    std::string in;
    std::string out;
    std::function<std::string(std::uint32_t gpu)> from;  // the GPU of the node that models come from
  };
  // From now on the node's other users of these links hear what is wanted of them here, and the other way
  // round: the device passes the links on the same object.
  void Share(std::shared_ptr<transport::LinkBuckets> links, Names names);

  [[nodiscard]] LinkPort& in() { return in_; }  // weights, and functions' states
  // Large inputs of runs, on a stream of their own: they do not wait behind the blocks of a model that the device
  // has already.
  [[nodiscard]] LinkPort& inputs() { return inputs_; }
  [[nodiscard]] LinkPort& out() { return out_; }
  // Both ports from the host as one.
  [[nodiscard]] LinkPort::State from_host() const { return Joined({&in_, &inputs_}); }
  // Of the link from another GPU; made when it is first asked for.
  [[nodiscard]] LinkPort& from(std::uint32_t gpu);
  // All links from other GPUs as one.
  [[nodiscard]] LinkPort::State from_others() const;
  // Nothing more is sent in any direction; waits for what is with the device.
  void Close();
  [[nodiscard]] const SwapPolicy& policy() const { return policy_; }
  [[nodiscard]] const SwapOptions& options() const { return options_; }
  [[nodiscard]] const LinkCurve& curve() const { return curve_; }
  // Whether the groups follow the model's tensors: GroupsOf then needs its description.
  [[nodiscard]] bool needs_model() const { return policy_.cut == SwapPolicy::Cut::kTensors; }
  [[nodiscard]] std::vector<Group> GroupsOf(Bytes weights, const proto::Model* model) const;

 private:
  [[nodiscard]] LinkPort::Options PortOptions() const;
  [[nodiscard]] static LinkPort::State Joined(const std::vector<const LinkPort*>& ports);
  Device& device_;
  const SwapOptions options_;
  const SwapPolicy policy_;
  const LinkCurve curve_;
  LinkPort in_;
  LinkPort inputs_;
  LinkPort out_;
  std::shared_ptr<transport::LinkBuckets> links_;
  Names names_;
  std::map<std::uint32_t, std::unique_ptr<LinkPort>> from_;
};

}  // namespace troupe::gpu
