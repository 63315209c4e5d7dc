// PASSES: each takes a graph and leaves an equal, simpler one ("equal": results differ by rounding at most).
// Order, and why, in import_model.cpp. A pass never fails because it cannot simplify; it fails where a step
// is wrong in itself.
#pragma once

#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/import/fold_budget.hpp"
#include "gpu/import/graph.hpp"
#include "gpu/import/onnx_reader.hpp"
#include "gpu/ops/operator.hpp"

namespace troupe::gpu {

// How often each value is read, by steps and as a model output.
using UseCounts = absl::flat_hash_map<std::string, int>;
[[nodiscard]] UseCounts CountUses(const Graph& graph);
[[nodiscard]] bool IsOutput(const Graph& graph, const std::string& value);

// One Unimplemented error that lists every operator that the table lacks, with the opset and how often it is
// used; or the error of the first step whose attributes are wrong in themselves (Operator::judge).
[[nodiscard]] absl::Status CheckOperators(const Graph& graph);

// Removes steps that no output depends on, and unused optional outputs at a step's end.
void EliminateDeadSteps(Graph& graph);

// Removes Identity, and Dropout in inference. What stands between an input or a constant and an output stays.
void EliminateIdentities(Graph& graph);

// Runs steps whose inputs are all known, with the operators' own kernels, and Shape and Size of known shapes.
// Results larger than options.max_folded stay steps.
// So do steps for which `budget` (in the short form: a fresh one of options.folding) has not enough left.
[[nodiscard]] absl::Status FoldConstants(Graph& graph, const ImportOptions& options, FoldBudget& budget);
[[nodiscard]] absl::Status FoldConstants(Graph& graph, const ImportOptions& options);

// Types and shapes of values for one choice of the dynamic dimensions; values of unknown shape are not in it.
using ValueInfos = absl::flat_hash_map<std::string, ValueInfo>;

// Infers every value with these sizes of the inputs' open dimensions. A model without open dimensions
// gets the error of the first step that is wrong; with them an error may be due to the choice, and is the
// caller's to weigh.
[[nodiscard]] absl::StatusOr<ValueInfos> InferValues(const Graph& graph, const OpenDimensions::Sizes& open);

// What is known of every value whatever the dynamic dimensions are: -1 where two choices differ, nothing
// where one of them fails. An error where every choice must fail: no dimension is dynamic, or only the batch
// and no batch works.
[[nodiscard]] absl::StatusOr<ValueInfos> InferShapes(const Graph& graph);

// Folds BatchNormalization, and Mul and Add of one constant per channel, into the Conv or BatchNormalization
// before.
void FoldAffine(Graph& graph, const ValueInfos& values);

// Fuses Add of a constant vector into MatMul, and Add of an equal shape (a residual) into Conv.
void FuseAddends(Graph& graph, const ValueInfos& values);

// Makes one step of x * Sigmoid(x): QuickGelu with a factor of 1. A Sigmoid that others read, too, stays.
void FuseSwish(Graph& graph, const ValueInfos& values);

// Fuses activations into the step before, where its operator honours Step.activation.
void FuseActivations(Graph& graph, const ValueInfos& values);

// Records the outputs' types and what is known of their shapes.
[[nodiscard]] absl::Status RecordOutputs(Graph& graph, const ValueInfos& values);

}  // namespace troupe::gpu
