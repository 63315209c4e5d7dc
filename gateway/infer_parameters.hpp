// The "parameters" of an inference request's inputs and outputs, and of shared memory what both have.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gateway/infer_members.hpp"
#include "gateway/inference_service.hpp"
#include "gateway/json_cursor.hpp"
#include "gateway/shared_client.hpp"

namespace troupe::gateway {

// Those members of one object that were read.
using Seen = std::vector<std::string_view>;
// Of the members that are read each may be there once: what one said may be in use when another one comes (a
// shape that comes after its data).
[[nodiscard]] absl::Status Once(JsonCursor& cursor, Seen& seen, std::string_view what, std::string_view key,
                                Members members);

// Where a tensor lies in a region of shared memory, as the client says.
struct SharedParameters {
  std::optional<std::string> region;
  std::optional<std::uint64_t> byte_size;
  std::optional<std::uint64_t> offset;  // absent: 0
  [[nodiscard]] bool any() const { return region || byte_size || offset; }
};
struct InputParameters {
  std::optional<std::uint64_t> binary_size;
  SharedParameters shared;
};
struct OutputParameters {
  std::optional<bool> binary;
  SharedParameters shared;
};

[[nodiscard]] absl::Status ReadInputParameters(JsonCursor& cursor, InputParameters& parameters);
[[nodiscard]] absl::Status ReadOutputParameters(JsonCursor& cursor, OutputParameters& parameters);

// The range that `shared` names for `tensor` ("input 'x'"). InvalidArgument when it lacks the region or the
// size; `client` null: as of a gateway without shared memory.
[[nodiscard]] absl::StatusOr<SharedRange> FindRange(const SharedClient* client,
                                                    const SharedParameters& shared, std::string_view tensor);
// A place for an input that is copied from shared memory: charged to its client until the call is over.
[[nodiscard]] absl::StatusOr<InputBuffer> ReserveCharged(const SharedClient& client,
                                                         InferenceService& service, Bytes size);

}  // namespace troupe::gateway
