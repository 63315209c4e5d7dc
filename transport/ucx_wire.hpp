// What two UCX endpoints say to each other: active-message headers, in host byte order (both ends are
// little-endian machines of one build; another version is refused).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "proto/tensor.pb.h"

namespace troupe::transport {

inline constexpr std::uint32_t kUcxMagic = 0x7472'7563;  // "truc"
inline constexpr std::uint32_t kUcxVersion = 2;
inline constexpr unsigned kAskId = 1;
inline constexpr unsigned kAnswerId = 2;

// What a reader knows from a reference, and nothing else on the network does: each endpoint has its own, and
// it is a part of the endpoint's address: "ip:port/" and 64 hexadecimal digits.
using UcxToken = std::array<unsigned char, 32>;
struct UcxAddress {
  std::string address;  // "ip:port"
  UcxToken token{};
};
[[nodiscard]] std::string FormatUcxAddress(const UcxAddress& endpoint);
// InvalidArgument for anything else; what the first part is, is not looked at.
absl::StatusOr<UcxAddress> ParseUcxAddress(const std::string& text);

// Client to server, without data: send me this slice.
struct UcxAsk {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint64_t request;  // chosen at random: nobody else can answer in the owner's place
  std::uint64_t arena;
  std::uint64_t offset;
  std::uint64_t length;
  std::uint64_t slice;
  UcxToken token;
};

// Server to client. The data are the bytes, or the text of the refusal.
struct UcxAnswer {
  std::uint32_t magic;
  std::int32_t code;  // absl::StatusCode
  std::uint64_t request;
};

// Nothing for a header of another version or of another length: the bytes come from the network.
inline std::optional<UcxAsk> ReadUcxAsk(const void* header, std::size_t length) {
  UcxAsk ask{};
  if (length != sizeof(ask)) return std::nullopt;
  std::memcpy(&ask, header, sizeof(ask));
  if (ask.magic != kUcxMagic || ask.version != kUcxVersion) return std::nullopt;
  return ask;
}
inline std::optional<UcxAnswer> ReadUcxAnswer(const void* header, std::size_t length) {
  UcxAnswer answer{};
  if (length != sizeof(answer)) return std::nullopt;
  std::memcpy(&answer, header, sizeof(answer));
  if (answer.magic != kUcxMagic) return std::nullopt;
  return answer;
}
// The slice that is asked for; whether it is there is the owner's to check.
inline proto::ArenaRef RefOf(const UcxAsk& ask) {
  proto::ArenaRef ref;
  ref.set_arena(ask.arena);
  ref.set_offset(ask.offset);
  ref.set_length(ask.length);
  ref.set_slice(ask.slice);
  return ref;
}

}  // namespace troupe::transport
