// TOPOLOGY: how a node's GPUs are wired: which of them share a switch on their way to the host, and which
// have a link of their own to each other. A plain value, read once from the configuration.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "node/request.hpp"

namespace troupe::node {

class Topology {
 public:
  // No peer links, and a switch for each GPU.
  Topology() = default;

  // Items with commas between them:
  //   switch:0-1          these GPUs (two or more) share one switch
  //   link:0-1=25GB       a link between two GPUs, bytes per second in each direction
  //   v100x4              four GPUs as in Torpor's Fig. 5: pairs 0-1 and 2-3 share a switch; NVLinks of 25
  //                       and 50 GB/s
  //   none                the same as no text
  // InvalidArgument says which item is wrong, and how.
  static absl::StatusOr<Topology> Parse(std::string_view text);
  // InvalidArgument when it names a GPU that a node with `gpus` of them does not have.
  [[nodiscard]] absl::Status Check(std::uint32_t gpus) const;

  // Two different GPUs behind one switch.
  [[nodiscard]] bool ShareSwitch(GpuIndex a, GpuIndex b) const;
  // Empty: they have no link of their own.
  [[nodiscard]] std::optional<BytesPerSecond> PeerLink(GpuIndex a, GpuIndex b) const;
  // The GPUs of each switch that several share.
  [[nodiscard]] std::vector<std::vector<GpuIndex>> Switches() const;
  struct Link {
    GpuIndex a = 0;
    GpuIndex b = 0;
    BytesPerSecond speed;  // in each direction
  };
  [[nodiscard]] std::vector<Link> PeerLinks() const;
  [[nodiscard]] bool HasLinks() const { return !links_.empty(); }
  [[nodiscard]] bool empty() const { return switches_.empty() && links_.empty(); }

 private:
  absl::Status AddSwitch(const std::string& text);
  absl::Status AddLink(const std::string& text);

  std::map<GpuIndex, std::uint32_t> switches_;                     // GPUs that share one with others
  std::map<std::pair<GpuIndex, GpuIndex>, BytesPerSecond> links_;  // the smaller index first
  std::uint32_t next_switch_ = 0;
};

}  // namespace troupe::node
