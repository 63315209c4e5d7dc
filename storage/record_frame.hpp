// The frame round every stored value (docs/storage-format.md): it shows a record that is torn, foreign, or
// that lies under another key than it was written for.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "storage/metadata_store.hpp"

namespace troupe::storage {

// u16 magic, u8 version, u8 zero, u32 length, u32 CRC-32C of table, key and value; little-endian.
inline constexpr std::size_t kFrameBytes = 12;

[[nodiscard]] std::string FrameRecord(Table table, std::string_view key, std::string_view value);

// The value inside `record`, a view into it. DataLoss: the frame or the checksum is wrong.
// FailedPrecondition: a frame version that this build does not know.
[[nodiscard]] absl::StatusOr<std::string_view> UnframeRecord(Table table, std::string_view key,
                                                             std::string_view record);

}  // namespace troupe::storage
