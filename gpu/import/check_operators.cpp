#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.hpp"
#include "gpu/import/onnx_node.hpp"
#include "gpu/import/passes.hpp"

namespace troupe::gpu {
namespace {

// What operators can say of their attributes before any shape is known.
absl::Status JudgeSteps(const Graph& graph) {
  for (const proto::Step& step : graph.steps) {
    const Operator* entry = FindOperator(step.op(), graph.opset);
    if (entry->judge != nullptr) TROUPE_RETURN_IF_ERROR(entry->judge(StepContext{step, graph.opset}));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckOperators(const Graph& graph) {
  struct Missing {
    int count = 0;
    const proto::Step* first = nullptr;
  };
  std::map<std::string, Missing> missing;  // sorted: the same file gets the same message
  for (const proto::Step& step : graph.steps) {
    if (FindOperator(step.op(), graph.opset) != nullptr) continue;
    Missing& entry = missing[step.op()];
    if (entry.count++ == 0) entry.first = &step;
  }
  if (missing.empty()) return JudgeSteps(graph);
  std::vector<std::string> lines;
  for (const auto& [op, entry] : missing)
    lines.push_back(absl::StrCat(op, " (", entry.count, entry.count == 1 ? " node, '" : " nodes, first '",
                                 entry.first->name(), "')"));
  return absl::UnimplementedError(absl::StrCat("the model uses operators that are not supported at opset ",
                                               graph.opset, ": ", absl::StrJoin(lines, ", "),
                                               "; docs/onnx.md lists the supported operators"));
}

}  // namespace troupe::gpu
