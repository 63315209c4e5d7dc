// ISOLATION: which functions share a runtime (a GPU worker's process). Each request has a key; a runtime
// serves one key, or none yet. A model that functions of two keys use has a copy for each, with a name of its
// own. Pure.
//
//   shared     ""               all functions that say so
//   tenant     "tenant/NAME"    the functions of a tenant; "tenant/-": functions without a tenant
//   workflow   "workflow/NAME"  what this workflow calls
//   function   "function/NAME"  one function, all its versions
//
// In the mode `workflow`, a function that no workflow calls, or that has device state, is on its own.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "proto/function.pb.h"

namespace troupe::node {

// As options and flags name the modes.
[[nodiscard]] absl::StatusOr<proto::Isolation> ParseIsolation(std::string_view name);

// `mode` is what the node does with functions that do not say (ISOLATION_DEFAULT); `workflow` may be empty.
[[nodiscard]] std::string IsolationKey(const proto::FunctionRecord& function, proto::Isolation mode,
                                       const std::string& workflow);

// A model's copy for one key: "DIGEST" for the shared one, else "DIGEST@KEY".
[[nodiscard]] std::string CopyName(const std::string& digest, const std::string& key);
// Parts of `copy`.
[[nodiscard]] std::string_view DigestOf(std::string_view copy);
[[nodiscard]] std::string_view KeyOf(std::string_view copy);

// How a worker names what it serves. The name is empty for fresh workers on a node that isolates
// (`isolated`), which serve no key, and elsewhere for shared workers.
inline constexpr char kSharedRuntime[] = "shared";
struct Serves {
  bool assigned = true;
  std::string key{};
  bool operator==(const Serves&) const = default;
};
[[nodiscard]] std::string RuntimeName(const Serves& serves, bool isolated);
// InvalidArgument: a worker of another program, or of a node that was set up in another way.
[[nodiscard]] absl::StatusOr<Serves> ParseRuntimeName(const std::string& name, bool isolated);

}  // namespace troupe::node
