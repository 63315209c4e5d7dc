#include "transport/ring_message.hpp"

#include <google/protobuf/message_lite.h>

#include <span>
#include <string>

#include "absl/strings/str_cat.h"

namespace troupe::transport {

absl::Status WriteMessage(RingWriter& writer, std::uint16_t op, std::uint64_t sequence,
                          const google::protobuf::MessageLite& message, Duration timeout) {
  const std::size_t size = message.ByteSizeLong();
  if (Bytes(size) > writer.memory().largest_payload()) {
    return absl::InvalidArgumentError(absl::StrCat(
        message.GetTypeName(), " of ", size, " bytes is too large for a ring of ",
        FormatBytes(writer.memory().capacity()), " (at most half of it); put its tensors into an arena"));
  }
  std::string bytes;
  if (!message.SerializeToString(&bytes)) {
    return absl::InternalError(absl::StrCat("cannot serialise a ", message.GetTypeName()));
  }
  return writer.Write(op, 0, sequence, std::as_bytes(std::span(bytes)), timeout);
}

absl::Status ParseMessage(const RingRecord& record, google::protobuf::MessageLite& message) {
  if (message.ParseFromString(record.payload)) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("record ", record.sequence, " (op ", record.op, ", ",
                                          record.payload.size(), " bytes) is not a valid ",
                                          message.GetTypeName(), "; its writer is broken"));
}

}  // namespace troupe::transport
