// The paths of the front: which endpoint a target names, and which methods it takes.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace troupe::gateway {

enum class Endpoint {
  kServerMetadata,    // GET  /v2
  kLive,              // GET  /v2/health/live
  kReady,             // GET  /v2/health/ready
  kModelMetadata,     // GET  /v2/models/NAME[/versions/VERSION]
  kModelReady,        // GET  .../ready
  kModelConfig,       // GET  .../config
  kModelStatistics,   // GET  .../stats
  kInfer,             // POST .../infer
  kAllStatistics,     // GET  /v2/models/stats
  kRepositoryIndex,   // POST /v2/repository/index
  kRepositoryLoad,    // POST /v2/repository/models/NAME/load
  kRepositoryUnload,  // POST /v2/repository/models/NAME/unload
  kSharedStatus,      // GET  /v2/systemsharedmemory[/region/NAME]/status
  kSharedRegister,    // POST /v2/systemsharedmemory/region/NAME/register
  kSharedUnregister,  // POST /v2/systemsharedmemory[/region/NAME]/unregister
  kFunctions,         // GET  /v2/troupe/functions
  kFunction,          // GET, POST (deploy), DELETE /v2/troupe/functions/NAME
  kCanary,            // POST /v2/troupe/functions/NAME/canary
  kPromote,           // POST /v2/troupe/functions/NAME/promote
  kRollBack,          // POST /v2/troupe/functions/NAME/rollback
  kSharing,           // POST /v2/troupe/functions/NAME/sharing
  kWorkflows,         // GET, POST (submit) /v2/troupe/workflows
  kWorkflow,          // DELETE /v2/troupe/workflows/NAME
  kRuns,              // GET  /v2/troupe/runs
  kRun,               // GET, DELETE (cancel) /v2/troupe/runs/RUN
  kImports,           // GET  /v2/troupe/imports
  kImport,            // GET  /v2/troupe/imports/SHA256
  kUpload,            // GET, PATCH, DELETE /v2/troupe/uploads/SHA256
  kCluster,           // GET  /v2/troupe/cluster
  kMetrics,           // GET  /metrics
  kHealthz,           // GET  /healthz
  kConsole,           // GET  /console[/FILE]
};

struct Route {
  Endpoint endpoint = Endpoint::kServerMetadata;
  std::string name;        // decoded
  std::string version;     // decoded; empty: not said
  std::string_view query;  // after '?', still encoded; a view of the target
};

// kNotFound for a path that does not exist, kInvalidArgument for a broken percent-encoding.
[[nodiscard]] absl::StatusOr<Route> ParseRoute(std::string_view target);

// "GET, HEAD": for the Allow header.
[[nodiscard]] std::string_view AllowedMethods(Endpoint endpoint);
[[nodiscard]] bool MethodAllowed(Endpoint endpoint, std::string_view method);

// Decodes %XX; with `plus_is_space` as in a query. kInvalidArgument when broken, or when it holds a NUL.
[[nodiscard]] absl::StatusOr<std::string> PercentDecode(std::string_view text, bool plus_is_space = false);
// "a=1&b=x%20y".
[[nodiscard]] absl::StatusOr<std::map<std::string, std::string>> ParseQuery(std::string_view query);

}  // namespace troupe::gateway
