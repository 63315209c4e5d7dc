// The parameters of Triton's sequence extension (sequence_id, sequence_start, sequence_end), which is not
// offered: a client that relies on it would get wrong answers, so it is refused by name.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "gateway/json_cursor.hpp"

namespace troupe::gateway {

// Reads the value. kUnimplemented, unless it is what clients send with a request that belongs to no sequence:
// 0, "" or false.
[[nodiscard]] absl::Status ReadSequenceParameter(JsonCursor& cursor, std::string_view key);

}  // namespace troupe::gateway
