// What two UCX endpoints say to each other: active-message headers, in host byte order (both ends are
// little-endian machines of one build; another version is refused).
#pragma once

#include <cstdint>

namespace troupe::transport {

inline constexpr std::uint32_t kUcxMagic = 0x7472'7563;  // "truc"
inline constexpr std::uint32_t kUcxVersion = 1;
inline constexpr unsigned kAskId = 1;
inline constexpr unsigned kAnswerId = 2;

// Client to server, without data: send me this slice.
struct UcxAsk {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint64_t request;  // chosen at random: nobody else can answer in the owner's place
  std::uint64_t arena;
  std::uint64_t offset;
  std::uint64_t length;
  std::uint64_t slice;
};

// Server to client. The data are the bytes, or the text of the refusal.
struct UcxAnswer {
  std::uint32_t magic;
  std::int32_t code;  // absl::StatusCode
  std::uint64_t request;
};

}  // namespace troupe::transport
