// Protobuf messages as records of a ring.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/units.hpp"
#include "transport/ring.hpp"

namespace google::protobuf {
class MessageLite;
}

namespace troupe::transport {

// Waits for space at most `timeout` (DeadlineExceeded). InvalidArgument for a message larger than half of the
// ring: such bytes belong in an arena.
absl::Status WriteMessage(RingWriter& writer, std::uint16_t op, std::uint64_t sequence,
                          const google::protobuf::MessageLite& message, Duration timeout);

// DataLoss when the payload is not a valid message of this type.
absl::Status ParseMessage(const RingRecord& record, google::protobuf::MessageLite& message);

}  // namespace troupe::transport
