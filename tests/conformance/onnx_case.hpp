// ONNX CASE: one folder of Debian's libonnx-testdata: a model, and sets of inputs with the outputs they must
// give.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/import/graph.hpp"
#include "onnx/onnx_pb.h"

namespace troupe::gpu::conformance {

struct OnnxCase {
  std::string name;  // "node/test_abs"
  std::filesystem::path folder;
  onnx::ModelProto model;
};

struct DataSet {
  std::vector<Constant> inputs;  // in the order of the graph's inputs that are not initialisers
  std::vector<Constant> outputs;
};

// Where Debian puts the data; the environment's TROUPE_ONNX_TESTDATA names another place.
[[nodiscard]] std::filesystem::path TestDataRoot();
// Every case of ONNX's own, sorted by name; empty when the data is not installed.
[[nodiscard]] std::vector<OnnxCase> LoadCases();
// Every case in these folders of `root`, sorted by name.
[[nodiscard]] std::vector<OnnxCase> LoadCases(const std::filesystem::path& root,
                                              std::span<const char* const> groups);
// The cases of tests/conformance/opsets, of opsets 18 to 23 and of fused operators. They are unpacked when the build is
// configured.
[[nodiscard]] std::vector<OnnxCase> LoadOpsetCases();
// Those of the domain ai.onnx.ml, from the same folder.
[[nodiscard]] std::vector<OnnxCase> LoadClassicCases();
// Which of these have several operators, and which are of fused operators.
[[nodiscard]] bool IsNetwork(const OnnxCase& test);
[[nodiscard]] bool IsFused(const OnnxCase& test);
[[nodiscard]] absl::StatusOr<onnx::ModelProto> LoadModel(const std::filesystem::path& file);
[[nodiscard]] absl::StatusOr<std::vector<DataSet>> LoadDataSets(const OnnxCase& test);
// Names of the graph's inputs that are not initialisers.
[[nodiscard]] std::vector<std::string> InputNames(const onnx::GraphProto& graph);

}  // namespace troupe::gpu::conformance
