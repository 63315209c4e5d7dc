#include "cluster/copies/state_keepers.hpp"

#include <algorithm>

namespace troupe::cluster {

std::vector<const proto::FunctionRecord*> KeepersOf(const FunctionTable& functions,
                                                    const std::string& digest) {
  std::vector<const proto::FunctionRecord*> keepers;
  const auto use = functions.models().find(digest);
  if (use == functions.models().end()) return keepers;
  for (const auto& version : use->second.functions)
    if (const auto& record = functions.At(version); !record.state().empty()) keepers.push_back(&record);
  return keepers;
}

std::uint32_t ReplicasOf(const FunctionTable& functions, const std::string& digest) {
  std::uint32_t most = 0;
  for (const auto* keeper : KeepersOf(functions, digest)) most = std::max(most, keeper->state_replicas());
  return most;
}

bool IsReplicated(const FunctionTable& functions, const std::string& digest) {
  return ReplicasOf(functions, digest) > 0;
}

}  // namespace troupe::cluster
