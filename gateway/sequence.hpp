// Which sequence of requests a client says that its request belongs to: in the JSON, as Triton's sequence extension has it
// (sequence_id, sequence_start, sequence_end), or in the header `Troupe-Sequence: ID; start; end`.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gateway/inference_service.hpp"
#include "gateway/json_cursor.hpp"

namespace troupe::gateway {

inline constexpr std::string_view kSequenceHeader = "Troupe-Sequence";

// Reads the value of one of the three parameters. An id is a number or text; 0 and "" are none, as clients send them.
[[nodiscard]] absl::Status ReadSequenceParameter(JsonCursor& cursor, std::string_view key,
                                                 Sequence& sequence);
// Without the header ("") none.
[[nodiscard]] absl::StatusOr<Sequence> ReadSequenceHeader(std::string_view header);
// What the JSON and the header say together: one of them is enough, and two have to say the same. A start or an end
// belongs to a sequence.
[[nodiscard]] absl::StatusOr<Sequence> JoinSequences(const Sequence& json, const Sequence& header);

}  // namespace troupe::gateway
