// MANIFESTS: what YAML documents say that a cluster shall have. Pure; what the cluster has is compared in plan.hpp.
//
//   kind: function                     kind: function                    kind: workflow
//   name: digits                       name: digits                      name: ensemble
//   model: digits.onnx                 deadline: 50ms                    steps: ...   as docs/workflows.md
//   deadline: 50ms                     versions:
//                                        1: {model: a.onnx, weight: 90%}
//                                        2: {model: b.onnx, weight: 10%}
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/admin.pb.h"
#include "shell/declarative/documents.hpp"

namespace troupe::shell {

// Before the digest of a model that the cluster has, where a manifest names no file.
inline constexpr std::string_view kByDigest = "sha256:";

struct Place {
  std::string file{};
  int line = 0;
};
// "InvalidArgument: FILE:LINE: what"
[[nodiscard]] absl::Status WrongAt(const Place& place, std::string_view what);

// What is said of one version, or of the function without naming versions.
struct VersionManifest {
  Place place{};
  // A file's path, or "sha256:DIGEST" for a model that the cluster has; empty: only the version's weight is said.
  std::string model{};
  Place model_place{};
  std::optional<std::uint32_t> weight{};  // percent of the requests that name no version
  proto::DeployRequest settings{};        // name, and what is said of objective, compute, isolation, state
};

struct FunctionManifest {
  Place place{};
  std::string name{};
  // By number. Empty: `only` says what the version is to be that answers requests.
  std::map<std::uint64_t, VersionManifest> versions{};
  std::optional<VersionManifest> only{};

  [[nodiscard]] bool has_weights() const;
};

struct WorkflowManifest {
  Place place{};
  std::string name{};
  std::string version{};
  std::string yaml{};  // a workflow file, whose lines have the numbers that they have in the file
};

struct Manifests {
  std::vector<FunctionManifest> functions{};
  std::vector<WorkflowManifest> workflows{};
};

// InvalidArgument: the first thing that is wrong, with file and line.
[[nodiscard]] absl::StatusOr<Manifests> ParseManifests(const std::vector<Document>& documents);

}  // namespace troupe::shell
