#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.hpp"
#include "gpu/import/onnx_node.hpp"
#include "gpu/import/passes.hpp"
#include "gpu/ops/control_flow.hpp"

namespace troupe::gpu {
namespace {

// What operators can say of their attributes before any shape is known.
absl::Status JudgeSteps(const google::protobuf::RepeatedPtrField<proto::Step>& steps, int opset);

absl::Status JudgeStep(const proto::Step& step, int opset) {
  for (const proto::Subgraph& subgraph : step.subgraphs())
    TROUPE_RETURN_IF_ERROR(JudgeSteps(subgraph.steps(), opset));
  const Operator* entry = FindOperator(step.op(), opset);
  return entry != nullptr && entry->judge != nullptr ? entry->judge(StepContext{step, opset})
                                                     : absl::OkStatus();
}

absl::Status JudgeSteps(const google::protobuf::RepeatedPtrField<proto::Step>& steps, int opset) {
  for (const proto::Step& step : steps) TROUPE_RETURN_IF_ERROR(JudgeStep(step, opset));
  return absl::OkStatus();
}

struct Missing {
  int count = 0;
  const proto::Step* first = nullptr;
};
using MissingOperators = std::map<std::string, Missing>;  // sorted: the same file gets the same message

void FindMissing(const proto::Step& step, int opset, MissingOperators& missing) {
  for (const proto::Subgraph& subgraph : step.subgraphs())
    for (const proto::Step& inner : subgraph.steps()) FindMissing(inner, opset, missing);
  if (FindOperator(step.op(), opset) != nullptr || FindControlFlow(step.op(), opset) != nullptr) return;
  Missing& entry = missing[step.op()];
  if (entry.count++ == 0) entry.first = &step;
}

}  // namespace

absl::Status CheckOperators(const Graph& graph) {
  MissingOperators missing;
  for (const proto::Step& step : graph.steps) FindMissing(step, graph.opset, missing);
  if (missing.empty()) {
    for (const proto::Step& step : graph.steps) TROUPE_RETURN_IF_ERROR(JudgeStep(step, graph.opset));
    return absl::OkStatus();
  }
  std::vector<std::string> lines;
  for (const auto& [op, entry] : missing)
    lines.push_back(absl::StrCat(op, " (", entry.count, entry.count == 1 ? " node, '" : " nodes, first '",
                                 entry.first->name(), "')"));
  return absl::UnimplementedError(absl::StrCat("the model uses operators that are not supported at opset ",
                                               graph.opset, ": ", absl::StrJoin(lines, ", "),
                                               "; docs/onnx.md lists the supported operators"));
}

}  // namespace troupe::gpu
