#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.hpp"
#include "gpu/import/onnx_node.hpp"
#include "gpu/import/passes.hpp"

namespace troupe::gpu {
namespace {

constexpr std::size_t kMostTold = 20;  // faults

// What operators can say of their attributes before any shape is known: all that is wrong, so that a file is mended once.
absl::Status JudgeSteps(const Graph& graph) {
  std::vector<std::string> faults;
  std::size_t more = 0;
  absl::Status first;
  for (const proto::Step& step : graph.steps) {
    const Operator* entry = FindOperator(step.op(), graph.opset);
    if (entry->judge == nullptr) continue;
    const absl::Status status = entry->judge(StepContext{step, graph.opset});
    if (status.ok()) continue;
    first.Update(status);
    std::string fault(status.message());
    if (std::ranges::find(faults, fault) != faults.end()) continue;
    faults.size() < kMostTold ? faults.push_back(std::move(fault)) : static_cast<void>(++more);
  }
  if (faults.size() < 2) return first;
  if (more > 0) faults.push_back(absl::StrCat("and ", more, " more"));
  return {first.code(), absl::StrJoin(faults, "; ")};
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
