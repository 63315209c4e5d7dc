#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/import/passes.hpp"

namespace troupe::gpu {
namespace {

// A size that depends on data is -1 where the file says so; where the file is silent, all of them may depend
// on it.
Shape ShapeOf(const ValueInfo& info, const proto::TensorSpec& declared) {
  if (!info.bounded) return info.shape;
  Shape shape = info.shape;
  const bool same_rank = declared.shape_size() == static_cast<int>(shape.size());
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (!same_rank || declared.shape(static_cast<int>(i)) < 0) shape[i] = -1;
  return shape;
}

// Dimensions of an output that no general inference knows: any choice of the open ones that works will tell.
absl::Status GuessRank(const Graph& graph, proto::TensorSpec& output) {
  for (const auto& trial : graph.open.Trials()) {
    const auto values = InferValues(graph, graph.open.SizesOf(trial));
    if (!values.ok() || !values->contains(output.name())) continue;
    for (std::size_t i = 0; i < values->at(output.name()).shape.size(); ++i) output.add_shape(-1);
    return absl::OkStatus();
  }
  return absl::UnimplementedError(
      absl::StrCat("output '", output.name(),
                   "' has no shape in the file, and none can be inferred for it; export the "
                   "model with its output shapes"));
}

}  // namespace

absl::Status RecordOutputs(Graph& graph, const ValueInfos& values) {
  for (proto::TensorSpec& output : graph.outputs) {
    const auto known = values.find(output.name());
    if (known == values.end()) {
      if (absl::c_linear_search(graph.unshaped_outputs, output.name()))
        TROUPE_RETURN_IF_ERROR(GuessRank(graph, output));
      continue;
    }
    const ValueInfo& info = known->second;
    if (info.type != output.type())
      return absl::InvalidArgumentError(
          absl::StrCat("output '", output.name(), "' is declared ", proto::DataType_Name(output.type()),
                       ", but the graph produces ", proto::DataType_Name(info.type)));
    const Shape shape = ShapeOf(info, output);
    output.mutable_shape()->Assign(shape.begin(), shape.end());
  }
  return absl::OkStatus();
}

}  // namespace troupe::gpu
