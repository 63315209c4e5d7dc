#include "tests/conformance/onnx_case.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/import/onnx_tensor.hpp"

namespace troupe::gpu::conformance {
namespace {

absl::StatusOr<std::string> ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", path.string()));
  return std::string(std::istreambuf_iterator<char>(file), {});
}

absl::StatusOr<std::vector<Constant>> LoadTensors(const std::filesystem::path& folder,
                                                  const std::string& prefix) {
  std::vector<Constant> tensors;
  for (int i = 0;; ++i) {
    const auto path = folder / absl::StrCat(prefix, "_", i, ".pb");
    if (!std::filesystem::exists(path)) return tensors;
    TROUPE_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
    onnx::TensorProto tensor;
    if (!tensor.ParseFromString(bytes))
      return absl::DataLossError(absl::StrCat(path.string(), " is no tensor"));
    TROUPE_ASSIGN_OR_RETURN(Constant constant, TakeTensor(tensor, {}, path.filename().string()));
    tensors.push_back(std::move(constant));
  }
}

}  // namespace

std::filesystem::path TestDataRoot() {
  const char* other = std::getenv("TROUPE_ONNX_TESTDATA");
  return other != nullptr ? other : "/usr/share/libonnx-testdata/data";
}

absl::StatusOr<onnx::ModelProto> LoadModel(const std::filesystem::path& file) {
  TROUPE_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(file));
  onnx::ModelProto model;
  if (!model.ParseFromString(bytes))
    return absl::DataLossError(absl::StrCat(file.string(), " is not an ONNX model"));
  return model;
}

std::vector<OnnxCase> LoadCases() {
  static constexpr const char* kGroups[] = {"node", "pytorch-converted", "pytorch-operator", "simple"};
  return LoadCases(TestDataRoot(), kGroups);
}

std::vector<OnnxCase> LoadCases(const std::filesystem::path& root, std::span<const char* const> groups) {
  std::vector<OnnxCase> cases;
  for (const char* const group : groups) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(root / group, error)) {
      auto model = LoadModel(entry.path() / "model.onnx");
      if (!model.ok()) continue;  // not a case: the folder holds no model
      cases.push_back(
          {absl::StrCat(group, "/", entry.path().filename().string()), entry.path(), *std::move(model)});
    }
  }
  std::sort(cases.begin(), cases.end(), [](const OnnxCase& a, const OnnxCase& b) { return a.name < b.name; });
  return cases;
}

namespace {

std::filesystem::path OwnCases() {
  const char* const other = std::getenv("TROUPE_OPSET_CASES");
  return other != nullptr ? other : TROUPE_OPSET_CASES;
}

}  // namespace

std::vector<OnnxCase> LoadOpsetCases() {
  static constexpr const char* kGroups[] = {"opsets",         "networks", "fused", "exports",
                                            "fused_networks", "control",  "texts"};
  return LoadCases(OwnCases(), kGroups);
}

std::vector<OnnxCase> LoadClassicCases() {
  static constexpr const char* kGroups[] = {"classic"};
  return LoadCases(OwnCases(), kGroups);
}

bool IsNetwork(const OnnxCase& test) {
  return test.name.starts_with("networks/") || test.name.starts_with("fused_networks/") ||
         test.name.starts_with("exports/");
}

bool IsFused(const OnnxCase& test) {
  return test.name.starts_with("fused");
}

absl::StatusOr<std::vector<DataSet>> LoadDataSets(const OnnxCase& test) {
  std::vector<DataSet> sets;
  for (int i = 0;; ++i) {
    const auto folder = test.folder / absl::StrCat("test_data_set_", i);
    if (!std::filesystem::exists(folder)) return sets;
    DataSet set;
    TROUPE_ASSIGN_OR_RETURN(set.inputs, LoadTensors(folder, "input"));
    TROUPE_ASSIGN_OR_RETURN(set.outputs, LoadTensors(folder, "output"));
    sets.push_back(std::move(set));
  }
}

std::vector<std::string> InputNames(const onnx::GraphProto& graph) {
  std::set<std::string> initialisers;
  for (const auto& tensor : graph.initializer()) initialisers.insert(tensor.name());
  std::vector<std::string> names;
  for (const auto& input : graph.input()) {
    if (!initialisers.contains(input.name())) names.push_back(input.name());
  }
  return names;
}

}  // namespace troupe::gpu::conformance
