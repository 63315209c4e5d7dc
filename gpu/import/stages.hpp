// STAGES: a model that no GPU can hold is divided into stages. Each stage is a model with some of the steps. Its inputs are the
// values that its steps read from the request or from earlier stages; its outputs are the values that later stages or the client
// need. Running the stages one after the other computes what the model computes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/import/graph.hpp"
#include "proto/stage_wish.hpp"

namespace troupe::gpu {

struct DividedGraph {
  struct Stage {
    Graph graph;
    // The stage's inputs for one row of the model, of sizes that the model is likely to work with: for a stage no such sizes can
    // be guessed. Empty when the graph stays whole, or none were found.
    std::vector<proto::TensorSpec> likely_inputs;
  };
  std::vector<Stage> stages;               // in order; one: the graph stays whole
  std::vector<std::string> model_outputs;  // of the graph as it was, by name; empty when it stays whole
};

// The same graph and bounds give the same stages. Stages end where least has to be handed on, and take about the same memory.
// InvalidArgument: the graph cannot be divided so.
[[nodiscard]] absl::StatusOr<DividedGraph> DivideGraph(Graph graph, const proto::StageBounds& bounds);

}  // namespace troupe::gpu
