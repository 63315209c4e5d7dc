// CRC-32C (Castagnoli): guards records against torn and misplaced bytes, not against people.
#pragma once

#include <cstdint>
#include <string_view>

namespace troupe::storage {

// Continues `crc` (0 to begin) over `data`.
[[nodiscard]] std::uint32_t Crc32c(std::uint32_t crc, std::string_view data);

}  // namespace troupe::storage
