#include "gpu/import/step_order.hpp"

#include <functional>
#include <queue>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.hpp"
#include "gpu/import/onnx_node.hpp"

namespace troupe::gpu {
namespace {

constexpr std::size_t kGiven = ~std::size_t{0};  // "produced" by the model's inputs or its constants

class Sorter {
 public:
  explicit Sorter(Graph& graph) : graph_(graph) {}

  absl::Status Run() {
    TROUPE_RETURN_IF_ERROR(FindProducers());
    TROUPE_RETURN_IF_ERROR(CountInputs());
    std::vector<std::size_t> order;
    std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
    for (std::size_t i = 0; i < missing_.size(); ++i)
      if (missing_[i] == 0) ready.push(i);
    while (!ready.empty()) {
      const std::size_t step = ready.top();
      ready.pop();
      order.push_back(step);
      for (std::size_t reader : readers_[step])
        if (--missing_[reader] == 0) ready.push(reader);
    }
    if (order.size() < graph_.steps.size()) return Cycle();
    std::vector<proto::Step> sorted;
    sorted.reserve(order.size());
    for (std::size_t step : order) sorted.push_back(std::move(graph_.steps[step]));
    graph_.steps = std::move(sorted);
    return absl::OkStatus();
  }

 private:
  absl::Status Produce(const std::string& name, std::size_t step, const std::string& who) {
    if (producers_.try_emplace(name, step).second) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(who, " makes the value '", name, "', which exists already: names must be unique"));
  }

  absl::Status FindProducers() {
    for (const proto::TensorSpec& input : graph_.inputs)
      TROUPE_RETURN_IF_ERROR(Produce(input.name(), kGiven, "an input"));
    for (const proto::Subgraph::Capture& capture : graph_.captures)
      TROUPE_RETURN_IF_ERROR(Produce(capture.name(), kGiven, "the graph around it"));
    for (const auto& [name, constant] : graph_.constants)
      TROUPE_RETURN_IF_ERROR(Produce(name, kGiven, "an initialiser"));
    for (std::size_t i = 0; i < graph_.steps.size(); ++i)
      for (const std::string& output : graph_.steps[i].outputs())
        if (!output.empty()) TROUPE_RETURN_IF_ERROR(Produce(output, i, StepLabel(graph_.steps[i])));
    for (const proto::TensorSpec& output : graph_.outputs)
      if (!producers_.contains(output.name()))
        return absl::InvalidArgumentError(absl::StrCat("nothing produces the output '", output.name(), "'"));
    return absl::OkStatus();
  }

  absl::Status CountInputs() {
    missing_.resize(graph_.steps.size());
    readers_.resize(graph_.steps.size());
    for (std::size_t i = 0; i < graph_.steps.size(); ++i)
      for (const std::string& input : graph_.steps[i].inputs()) {
        if (input.empty()) continue;
        const auto producer = producers_.find(input);
        if (producer == producers_.end())
          return absl::InvalidArgumentError(
              absl::StrCat(StepLabel(graph_.steps[i]), " reads '", input,
                           "', which is no input, no initialiser and no node's output"));
        if (producer->second == kGiven) continue;
        readers_[producer->second].push_back(i);
        ++missing_[i];
      }
    return absl::OkStatus();
  }

  // Every step that is left waits for another step that is left, so that walking to producers must return to
  // a step that was seen.
  absl::Status Cycle() {
    std::size_t at = 0;
    while (missing_[at] == 0) ++at;
    absl::flat_hash_map<std::size_t, std::size_t> seen;
    std::vector<std::size_t> path;
    while (seen.try_emplace(at, path.size()).second) {
      path.push_back(at);
      for (const std::string& input : graph_.steps[at].inputs()) {
        const auto producer = producers_.find(input);
        if (producer == producers_.end() || producer->second == kGiven || missing_[producer->second] == 0)
          continue;
        at = producer->second;
        break;
      }
    }
    std::vector<std::string> names;
    for (std::size_t i = seen[at]; i < path.size() && names.size() < 10; ++i)
      names.push_back(StepLabel(graph_.steps[path[i]]));
    return absl::InvalidArgumentError(absl::StrCat("the graph is cyclic: ", absl::StrJoin(names, " needs "),
                                                   " needs the first of them again"));
  }

  Graph& graph_;
  absl::flat_hash_map<std::string, std::size_t> producers_;
  std::vector<std::size_t> missing_;               // inputs of each step that are not produced yet
  std::vector<std::vector<std::size_t>> readers_;  // of each step's outputs
};

}  // namespace

absl::Status SortSteps(Graph& graph) {
  return Sorter(graph).Run();
}

}  // namespace troupe::gpu
