// BODY DECODER: makes of a compressed request body what it was, piece by piece as it arrives. What comes out
// may be a thousand times what went in, so that the caller takes it in pieces too, and pays for each before
// it asks for the next.
#pragma once

#include <zlib.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace troupe::gateway {

enum class BodyCoding { kIdentity, kGzip, kDeflate };
inline constexpr std::string_view kBodyCodings = "gzip, deflate";
// Of a Content-Encoding header, in any case; nothing for codings that are not taken, or several.
[[nodiscard]] std::optional<BodyCoding> ParseBodyCoding(std::string_view header);

class BodyDecoder {
 public:
  // Beyond kFree bytes a body may be kMostRatio times as long as it arrived: a tensor of numbers is 2 to 20
  // times, a bomb a thousand.
  static constexpr std::uint64_t kFree = 16 << 20;
  static constexpr std::uint64_t kMostRatio = 200;

  // kGzip (RFC 1952, one or several members) or kDeflate (RFC 1950).
  explicit BodyDecoder(BodyCoding coding);
  ~BodyDecoder();
  BodyDecoder(const BodyDecoder&) = delete;
  BodyDecoder& operator=(const BodyDecoder&) = delete;

  // What arrived; valid until Decode has answered 0 for it.
  void Feed(std::string_view bytes);
  // The bytes written to `into`, which is not empty; 0: more has to be fed, or the end. kInvalidArgument when
  // the stream is broken, or something follows it; kOutOfRange when it expands too far.
  absl::StatusOr<std::size_t> Decode(std::span<std::byte> into);
  // After the last byte was fed and decoded: kInvalidArgument when the stream has no end.
  [[nodiscard]] absl::Status CheckEnd() const;

 private:
  [[nodiscard]] absl::Status NextMember();

  const BodyCoding coding_;
  z_stream stream_{};
  bool usable_ = false;
  bool ended_ = false;
  std::uint64_t fed_ = 0;
  std::uint64_t decoded_ = 0;
};

}  // namespace troupe::gateway
