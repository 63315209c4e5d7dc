// SUBGRAPHS of If, Loop and Scan steps while a model is imported.
//
//   file -> AddControlStep: beside the graph, captures known -> InlineBranches: those whose condition is a constant
//   become steps of the graph -> SimplifySubgraphs: folded, each by itself -> SealSubgraphs: written into their step
//
// What a subgraph reads of the graph around it is an input of its step, so the passes over a graph need not look into
// subgraphs: they see every use of every value.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/import/fold_budget.hpp"
#include "gpu/import/graph.hpp"
#include "gpu/import/onnx_reader.hpp"

namespace troupe::gpu {

// A step's subgraphs by the names of their attributes.
using NamedSubgraphs = std::vector<std::pair<std::string, std::shared_ptr<Graph>>>;

// Adds the If, Loop or Scan `step` to `graph`, and puts the steps of its subgraphs in order.
[[nodiscard]] absl::Status AddControlStep(proto::Step step, NamedSubgraphs subgraphs, Graph& graph);

// Of a step that AddControlStep added.
[[nodiscard]] std::vector<std::shared_ptr<Graph>> SubgraphsOf(const Graph& graph, const proto::Step& step);
// Where they now stand, in a graph that got them from another.
void PlaceSubgraphs(const std::vector<std::shared_ptr<Graph>>& subgraphs, proto::Step& step, Graph& graph);

// Replaces every If whose condition is a constant by the steps of its branch, again and again, and folds before each
// time.
[[nodiscard]] absl::Status FoldAndInline(Graph& graph, const ImportOptions& options, FoldBudget& budget);

// Gives subgraphs the constants that they capture, and folds and simplifies them; what a subgraph no longer reads is no
// longer its step's input.
[[nodiscard]] absl::Status SimplifySubgraphs(Graph& graph, const ImportOptions& options, FoldBudget& budget);

// Writes every subgraph into its step. Its constants become the graph's, which the step reads.
[[nodiscard]] absl::Status SealSubgraphs(Graph& graph);

}  // namespace troupe::gpu
