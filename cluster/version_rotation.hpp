// VERSION ROTATION: which version of a function gets the next request that names none, by the shares of its
// versions. Smooth weighted round robin: of 100 requests in a row each version gets exactly its share, and the
// requests of a small share are spread evenly. No randomness: the same requests get the same versions. Each
// router has its own.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "cluster/function_table.hpp"

namespace troupe::cluster {

class VersionRotation {
 public:
  // The version to which the next request for this function goes: the version that the request names, else the
  // version whose turn it is. Errors: as FunctionTable::FindServed.
  [[nodiscard]] absl::StatusOr<const proto::FunctionRecord*> Choose(const FunctionTable& functions,
                                                                    const proto::FunctionKey& key);

 private:
  // Null when the versions of the function do not share requests, or when at most one version with a share is loaded.
  [[nodiscard]] const proto::FunctionRecord* Next(const FunctionTable& functions, const std::string& name);

  struct Turn {
    std::uint32_t share = 0;
    std::int64_t credit = 0;
  };
  using Turns = std::map<std::uint64_t, Turn>;  // by version

  std::map<std::string, Turns> functions_;  // only of functions that share requests at present
};

}  // namespace troupe::cluster
