// PLAN: what has to change so that a cluster has what manifests say, in the order in which it is to be done. Pure: the
// cluster's answers come in, requests go out. Nothing is sent before the whole plan is made.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/admin.pb.h"
#include "shell/declarative/manifest.hpp"

namespace troupe::shell {

// What the cluster has, and what is known of the files that manifests name.
struct Present {
  proto::AdminReply functions{};                 // ListFunctions
  proto::AdminReply workflows{};                 // ListWorkflows
  std::map<std::string, std::string> digests{};  // of the ONNX files, by path
  std::vector<proto::WorkflowSpec>
      read_workflows{};  // the manifests' workflows as the manager read them, in order
};

enum class Pruning { kKeep, kRemove };  // what the cluster has and no manifest names

struct PlannedChange {
  char sign = '~';                     // '+' new, '~' changed, '-' removed
  std::string what{};                  // "function digits version 2"
  std::vector<std::string> details{};  // "deadline: 50ms -> 40ms"
  Place place{};                       // in the files; without a file: of what is removed
  proto::AdminRequest request{};
  std::string model_file{};  // the ONNX file that is uploaded before the request is sent; empty: none is
};

struct Plan {
  std::vector<PlannedChange> changes{};
  std::vector<std::string> unchanged{};  // "function digits"
};

// InvalidArgument names the file and the line of a manifest that the cluster cannot follow.
[[nodiscard]] absl::StatusOr<Plan> MakePlan(const Manifests& manifests, const Present& present,
                                            Pruning pruning);

}  // namespace troupe::shell
