// FAULTS: what goes wrong with a simulated cluster's network, and when, as YAML. Mistakes are told with their
// line and column.
//
//   - {at: 5s, partition: [gateway-1, node-2], for: 3s}                  nothing goes between the two
//   - {at: 9s, partition: [node-1, manager], for: 500ms, one-way: true}  nothing goes from the first to the
//                                                                        second
//   - {at: 12s, cut: [gateway-1, node-1]}                                the connection is lost, and made
//   anew
//
// Members are called manager, gateway-1 and node-1, node-2, ...; times are since the first request could
// come.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/cluster_file.hpp"

namespace troupe::sim {

class Network;

struct Fault {
  enum class Kind { kPartition, kCut };
  Kind kind = Kind::kPartition;
  Duration at{};
  std::string from{}, to{};
  bool one_way = false;  // of a partition
  Duration length{};     // of a partition
};
// The beginning of a fault, or its end.
struct FaultStep {
  Duration at{};
  Fault fault{};
  bool ends = false;
};

// `name` is what the messages call the file; members must be the cluster's. InvalidArgument: NAME:LINE:COLUMN
// and what was expected.
[[nodiscard]] absl::StatusOr<std::vector<Fault>> ParseFaults(std::string_view text, const std::string& name,
                                                             const ClusterSpec& cluster);
// NotFound when there is no such file.
[[nodiscard]] absl::StatusOr<std::vector<Fault>> ReadFaults(const std::string& path,
                                                            const ClusterSpec& cluster);

// In the order in which they come.
[[nodiscard]] std::vector<FaultStep> StepsOf(const std::vector<Fault>& faults);
void Apply(const FaultStep& step, Network& network);

}  // namespace troupe::sim
