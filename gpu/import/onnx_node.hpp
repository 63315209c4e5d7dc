// Nodes of an ONNX file as steps.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "gpu/import/onnx_reader.hpp"

namespace onnx {
class NodeProto;
}

namespace troupe::gpu {

// "Conv 'conv1'": how errors name a step; a node without a name is called by its first output.
[[nodiscard]] std::string StepLabel(const proto::Step& step);

// Whether the node is an If, Loop or Scan, whose graphs are read.
[[nodiscard]] bool HasSubgraphs(const onnx::NodeProto& node);

// Graphs inside the node are not taken: of an operator that may have some, CheckOperators says that it is not supported.
// An operator of another domain than ONNX's becomes "domain.Operator",
// which no operator table knows.
[[nodiscard]] absl::StatusOr<proto::Step> TakeNode(onnx::NodeProto& node, const ImportOptions& options);

// Constant nodes are tensors in disguise.
[[nodiscard]] absl::StatusOr<Constant> ConstantOf(const proto::Step& step);

}  // namespace troupe::gpu
