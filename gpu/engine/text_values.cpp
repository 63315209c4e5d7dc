#include "gpu/engine/text_values.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "gpu/ops/text_room.hpp"

namespace troupe::gpu {

absl::Status NoTextsThere(const std::string& who) {
  return absl::UnimplementedError(absl::StrCat(
      who,
      " has texts (BYTES), which real GPUs do not compute; serve this function on a virtual GPU, or "
      "make numbers of the texts before the model"));
}

Bytes TextRoomOf(const proto::TensorSpec& spec) {
  const Shape shape(spec.shape().begin(), spec.shape().end());
  return TextRoom(CountElements(shape).value_or(0), Bytes(spec.text_bytes()));
}

absl::StatusOr<Bytes> RoomOfOutput(const std::string& label, const ValueInfo& elements) {
  const std::uint64_t lengths = static_cast<std::uint64_t>(elements.elements()) * kTextLength;
  if (lengths <= kMaxTextBytes.count())
    return Bytes(std::min(lengths + elements.texts.total, kMaxTextBytes.count()));
  return absl::InvalidArgumentError(absl::StrCat(label, " has ", elements.elements(),
                                                 " texts, more than fit into ", FormatBytes(kMaxTextBytes)));
}

ValueInfo CollectedTexts(Bytes room) {
  ValueInfo info;
  info.type = proto::UINT8;
  info.shape = {static_cast<std::int64_t>(room.count())};
  info.bounded = true;
  return info;
}

}  // namespace troupe::gpu
