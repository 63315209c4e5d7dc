// What a canonical model must satisfy before anything trusts it: its maker ran on a hostile file, and a disk
// lies between. A process that reads a model from outside calls this once; afterwards a violated rule is a
// bug.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "proto/formats.hpp"
#include "proto/model.pb.h"

namespace troupe::gpu {

inline constexpr std::uint32_t kModelFormat = proto::kModelFormat;

// The format that `model` is written in: the first that has what it uses.
[[nodiscard]] std::uint32_t FormatOf(const proto::Model& model);

// Checks that in each subgraph names are unique and defined before they are read, types and shapes are sound, and a step
// produces every output; that weights lie aligned inside a blob of `weights_bytes` bytes and fit their type and shape
// (weights with a device layout only have to lie inside); and that subgraphs lie at most kMaxSubgraphDepth deep.
// InvalidArgument names the weight, the step or the tensor. The blob's digest is not computed here.
[[nodiscard]] absl::Status CheckModel(const proto::Model& model, std::uint64_t weights_bytes);

}  // namespace troupe::gpu
