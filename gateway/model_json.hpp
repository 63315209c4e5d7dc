// The protocol's JSON about functions and the server: metadata, configuration, statistics, the repository's
// index.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gateway/inference_service.hpp"

namespace troupe::gateway {

using FunctionPtr = std::shared_ptr<const FunctionInfo>;

[[nodiscard]] std::string ServerMetadataJson(std::string_view version, bool shared_memory);
[[nodiscard]] std::string HealthJson(bool live, bool ready);
[[nodiscard]] std::string ModelMetadataJson(const FunctionInfo& function);
[[nodiscard]] std::string ModelReadyJson(const FunctionInfo& function);
// As Triton's: types are TYPE_FP32 ... TYPE_STRING; `max_batch_size` 0 (the shapes are whole).
[[nodiscard]] std::string ModelConfigJson(const FunctionInfo& function);
[[nodiscard]] std::string StatisticsJson(const std::vector<std::pair<FunctionPtr, FunctionStatistics>>& all);
// Triton's states: READY, UNAVAILABLE.
[[nodiscard]] std::string RepositoryIndexJson(const std::vector<FunctionPtr>& functions, bool ready_only);

// The body of a repository index request: empty, or {"ready": bool, ...}.
[[nodiscard]] absl::StatusOr<bool> ParseIndexRequest(std::string_view body);
// The body of a load or unload request: empty, or {"parameters": {name: string | number | bool}}.
[[nodiscard]] absl::StatusOr<std::map<std::string, std::string>> ParseLoadRequest(std::string_view body);

}  // namespace troupe::gateway
