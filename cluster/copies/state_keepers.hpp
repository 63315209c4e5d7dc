// The functions that keep a state with a model: all of them have it on one node, the model's home.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cluster/function_table.hpp"

namespace troupe::cluster {

[[nodiscard]] std::vector<const proto::FunctionRecord*> KeepersOf(const FunctionTable& functions,
                                                                  const std::string& digest);
// On how many other nodes the images of their states are to have copies: the largest number among them.
[[nodiscard]] std::uint32_t ReplicasOf(const FunctionTable& functions, const std::string& digest);
// They are to have any.
[[nodiscard]] bool IsReplicated(const FunctionTable& functions, const std::string& digest);

}  // namespace troupe::cluster
