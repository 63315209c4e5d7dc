// ONNX READER: a hostile ONNX file becomes a canonical model, without any optimisation.
//
// What it guarantees of what it returns: value names are unique, steps are sorted, every value that is read
// exists, every tensor's bytes fit its type and shape. What it does not judge: whether operators are
// supported (CheckOperators) and whether shapes agree (InferShapes). Errors name the node and the reason:
// InvalidArgument (bad file), Unimplemented (sound but not supported), ResourceExhausted (a limit of
// ImportOptions).
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "gpu/import/external_data.hpp"
#include "gpu/import/fold_budget.hpp"
#include "gpu/import/graph.hpp"
#include "gpu/ops/operator.hpp"
#include "gpu/ops/weights_output.hpp"
#include "proto/model.pb.h"

namespace troupe::gpu {

struct ImportOptions {
  // Folder of the ONNX file, where external data may lie. Empty: there are the opened files only.
  std::filesystem::path folder;
  OpenedFiles opened;  // of that folder, in a jail; or of the archive that the ONNX file came in
  WeightsOutput* weights = nullptr;                    // null: they are kept in memory
  proto::Precision precision = proto::PRECISION_FP32;  // Model.precision
  std::size_t max_nodes = 100'000;
  Bytes max_weights = GiB(16);  // of all weights together
  // Largest single result that constant folding may make.
  Bytes max_folded = GiB(1);
  // What constant folding may compute in all; steps beyond it stay in the graph.
  FoldLimits folding;
  // Hears how many of the steps were visited by folding, out of how many. May be empty.
  std::function<void(std::uint64_t, std::uint64_t)> on_folding;
};

struct ImportedModel {
  proto::Model model;
  OpenDimensions open;                           // of its inputs
  std::uint32_t stage = 1;                       // which of its stages this is
  std::uint32_t stages = 1;                      // into which the file's model is divided
  std::vector<std::string> model_outputs;        // of the file's model, by name; empty when it is not divided
  std::vector<proto::TensorSpec> likely_inputs;  // of a stage (DividedGraph)
  std::vector<std::byte> weights;                // the blob that model.weights describes, in memory
  std::span<const std::byte> written_weights;    // or where ImportOptions.weights has it
  [[nodiscard]] std::span<const std::byte> blob() const {
    return weights.empty() ? written_weights : std::span<const std::byte>(weights);
  }
};

inline constexpr int kMinOpset = 7;
inline constexpr int kMaxOpset = kNewestOpset;

[[nodiscard]] absl::StatusOr<Graph> ReadGraph(std::span<const std::byte> file, const ImportOptions& options);

// ReadGraph and LayOut: the model as the file has it.
[[nodiscard]] absl::StatusOr<ImportedModel> ReadOnnx(std::span<const std::byte> file,
                                                     const ImportOptions& options);

}  // namespace troupe::gpu
