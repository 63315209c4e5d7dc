// What the two ends of a fetch between hosts say to each other, over a stream or as headers of UCX's active
// messages; in host byte order (both ends are little-endian machines of one build; another version is
// refused).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "proto/formats.hpp"
#include "proto/tensor.pb.h"

namespace troupe::transport {

inline constexpr std::uint32_t kFetchMagic = 0x7472'6663;  // "trfc"
inline constexpr std::uint32_t kFetchVersion = proto::kTensorFetchFormat;

// What a reader knows from a reference, and nothing else on the network does: each endpoint has its own.
using EndpointToken = std::array<unsigned char, 32>;
[[nodiscard]] EndpointToken FreshToken();
// In a time that does not depend on where the two differ.
[[nodiscard]] bool SameToken(const EndpointToken& a, const EndpointToken& b);

enum class FetchProtocol { kStream, kUcx };
// "PROTOCOL/ip:port/TOKEN": "stream" or "ucx", and the token in 64 hexadecimal digits.
struct EndpointAddress {
  FetchProtocol protocol = FetchProtocol::kStream;
  std::string address;  // "ip:port"
  EndpointToken token{};
};
[[nodiscard]] std::string FormatEndpointAddress(const EndpointAddress& endpoint);
// InvalidArgument for anything else; what the part in the middle is, is not looked at.
absl::StatusOr<EndpointAddress> ParseEndpointAddress(const std::string& text);
// The address of the endpoint that a tensor's reference names. FailedPrecondition, with what to do, when the
// reference names none, or one of the other protocol.
absl::StatusOr<EndpointAddress> EndpointOf(const proto::ArenaRef& ref, FetchProtocol protocol);

// Reader to owner, without data: send me this slice.
struct FetchAsk {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint64_t request;  // chosen at random: no other peer can answer in the owner's place
  std::uint64_t arena;
  std::uint64_t offset;
  std::uint64_t length;
  std::uint64_t slice;
  EndpointToken token;
};

// Owner to reader. The data that follow are the slice's bytes, or the text of the refusal.
struct FetchAnswer {
  std::uint32_t magic;
  std::int32_t code;  // absl::StatusCode
  std::uint64_t request;
  std::uint64_t length;  // of the data
};
// A refusal's text is cut there.
inline constexpr std::size_t kLongestRefusal = 512;

// Nothing for a header of another version or of another length: the bytes come from the network.
inline std::optional<FetchAsk> ReadFetchAsk(const void* header, std::size_t length) {
  FetchAsk ask{};
  if (length != sizeof(ask)) return std::nullopt;
  std::memcpy(&ask, header, sizeof(ask));
  if (ask.magic != kFetchMagic || ask.version != kFetchVersion) return std::nullopt;
  return ask;
}
inline std::optional<FetchAnswer> ReadFetchAnswer(const void* header, std::size_t length) {
  FetchAnswer answer{};
  if (length != sizeof(answer)) return std::nullopt;
  std::memcpy(&answer, header, sizeof(answer));
  if (answer.magic != kFetchMagic) return std::nullopt;
  return answer;
}
// The slice that is asked for; whether it is there is the owner's to check.
inline proto::ArenaRef RefOf(const FetchAsk& ask) {
  proto::ArenaRef ref;
  ref.set_arena(ask.arena);
  ref.set_offset(ask.offset);
  ref.set_length(ask.length);
  ref.set_slice(ask.slice);
  return ref;
}
[[nodiscard]] FetchAsk MakeAsk(const proto::ArenaRef& ref, const EndpointToken& token, std::uint64_t request);

}  // namespace troupe::transport
