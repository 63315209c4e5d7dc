// GRAPH: a model while it is being imported: steps by value name, constants beside them.
//
//   ONNX file -> ReadGraph -> Graph -> passes -> LayOut -> model
//   Each pass takes a Graph and leaves an equal, simpler one.
//
// What holds between passes: every value has one producer (an input, a constant or one step), steps are in an
// order in which every input is produced before it is read, and every model output is produced by a step, or is an input.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "gpu/import/open_dimensions.hpp"
#include "proto/model.pb.h"

namespace troupe::gpu {

// Bytes of a tensor: in memory of their own, or where they lie in a mapped file, so that a model's weights need no memory.
using TensorBytes = std::shared_ptr<const std::string_view>;

[[nodiscard]] inline TensorBytes HoldBytes(std::string bytes) {
  struct Held {
    explicit Held(std::string own) : bytes(std::move(own)), view(bytes) {}
    const std::string bytes;
    const std::string_view view;
  };
  const auto held = std::make_shared<const Held>(std::move(bytes));
  return {held, &held->view};
}
[[nodiscard]] inline TensorBytes HoldBytes(const void* data, std::size_t size) {
  return HoldBytes(std::string(static_cast<const char*>(data), size));
}

// A tensor known at import: a row-major initialiser, or the result of folding. Contents are shared, never
// changed.
struct Constant {
  proto::DataType type = proto::DATA_TYPE_UNSPECIFIED;
  std::vector<std::int64_t> shape;
  TensorBytes data;  // little-endian; BYTES: 4-byte length and bytes per element
};

inline constexpr char kSubgraphPlaces[] = "subgraph places";

struct Graph {
  std::string name;
  std::string onnx_digest;
  int opset = 0;
  std::vector<proto::TensorSpec> inputs;  // without the initialisers
  std::vector<proto::TensorSpec> outputs;
  std::vector<std::string> unshaped_outputs;  // outputs whose shape the file does not tell
  OpenDimensions open;                        // of the inputs; none of a subgraph's
  std::vector<proto::Step> steps;
  absl::flat_hash_map<std::string, Constant> constants;  // by value name
  // Of steps with subgraphs, until SealSubgraphs writes them into the steps. Such a step's attribute kSubgraphPlaces says
  // which of this list are its own.
  std::vector<std::shared_ptr<Graph>> subgraphs;
  // Of a subgraph: what it reads of the graph around it. Its inputs and outputs have names only.
  std::vector<proto::Subgraph::Capture> captures;
};

}  // namespace troupe::gpu
