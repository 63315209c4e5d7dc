#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.hpp"
#include "gpu/import/onnx_node.hpp"
#include "gpu/import/passes.hpp"
#include "gpu/import/sequences.hpp"
#include "gpu/ops/control_flow.hpp"

namespace troupe::gpu {
namespace {

// What operators say of the attributes of a file's steps before any shape is known: all that is wrong, so that a file is
// mended once.
class Faults {
 public:
  explicit Faults(int opset) : opset_(opset) {}
  void Judge(const proto::Step& step) {
    for (const proto::Subgraph& subgraph : step.subgraphs())
      for (const proto::Step& inner : subgraph.steps()) Judge(inner);
    const Operator* entry = FindOperator(step.op(), opset_);
    if (entry == nullptr || entry->judge == nullptr) return;
    const absl::Status status = entry->judge(StepContext{step, opset_});
    if (status.ok()) return;
    first_.Update(status);
    std::string fault(status.message());
    if (std::ranges::find(told_, fault) != told_.end()) return;
    told_.size() < kMost ? told_.push_back(std::move(fault)) : static_cast<void>(++more_);
  }
  [[nodiscard]] absl::Status ToStatus() const {
    if (told_.size() < 2) return first_;
    const std::string rest = more_ > 0 ? absl::StrCat("; and ", more_, " more") : std::string();
    return {first_.code(), absl::StrCat(absl::StrJoin(told_, "; "), rest)};
  }

 private:
  static constexpr std::size_t kMost = 20;
  const int opset_;
  std::vector<std::string> told_;
  std::size_t more_ = 0;
  absl::Status first_;
};

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
    Faults faults(graph.opset);
    for (const proto::Step& step : graph.steps) faults.Judge(step);
    return faults.ToStatus();
  }
  std::vector<std::string> lines;
  for (const auto& [op, entry] : missing)
    lines.push_back(absl::StrCat(
        op, " (", entry.count, entry.count == 1 ? " node, '" : " nodes, first '", entry.first->name(), "'",
        IsSequenceOperator(op, graph.opset) ? ", whose sequence only a run knows)" : ")"));
  return absl::UnimplementedError(absl::StrCat("the model uses operators that are not supported at opset ",
                                               graph.opset, ": ", absl::StrJoin(lines, ", "),
                                               "; docs/onnx.md lists the supported operators"));
}

}  // namespace troupe::gpu
