#include "actors/peers/frame_guard.hpp"

#include <algorithm>
#include <caf/io/basp/header.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"

namespace troupe::actors {

namespace {

using Kind = caf::io::basp::message_type;

constexpr std::size_t kLengthAt = 4;
static_assert(caf::io::basp::header_size == 32);

std::uint32_t LengthIn(std::span<const char> header) {
  std::uint32_t length = 0;
  for (std::size_t i = 0; i < 4; ++i)
    length = length << 8 | static_cast<unsigned char>(header[kLengthAt + i]);
  return length;
}

absl::Status Within(const char* kind, std::uint32_t length, std::uint32_t least, std::uint32_t most) {
  if (length >= least && length <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a header claims ", length, " bytes of a ", kind,
                                                 ", which has ", least, " to ", most, " bytes"));
}

}  // namespace

absl::Status FrameGuard::See(std::span<const char> bytes) {
  while (!bytes.empty()) {
    if (payload_left_ > 0) {
      const auto size = std::min<std::size_t>(payload_left_, bytes.size());
      if (is_handshake_ && side_ == Side::kAccepted) said_.append(bytes.data(), size);
      payload_left_ -= static_cast<std::uint32_t>(size);
      bytes = bytes.subspan(size);
      if (payload_left_ == 0) TROUPE_RETURN_IF_ERROR(EndFrame());
      continue;
    }
    const auto size = std::min(header_.size() - header_seen_, bytes.size());
    std::copy_n(bytes.begin(), size, header_.begin() + static_cast<std::ptrdiff_t>(header_seen_));
    header_seen_ += size;
    bytes = bytes.subspan(size);
    if (header_seen_ < header_.size()) break;
    header_seen_ = 0;
    TROUPE_RETURN_IF_ERROR(JudgeHeader());
    payload_left_ = LengthIn(header_);
  }
  return absl::OkStatus();
}

absl::Status FrameGuard::JudgeHeader() {
  const auto length = LengthIn(header_);
  const auto kind = static_cast<Kind>(header_[0]);
  is_handshake_ = kind == Kind::client_handshake || kind == Kind::server_handshake;
  if (is_handshake_) return JudgeHandshake(length);
  if (!handshaken_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the first frame is of kind ", static_cast<unsigned char>(header_[0]), ", not a handshake"));
  }
  switch (kind) {
    case Kind::direct_message:
      return Within("message", length, 1, FrameLimits::kMessage);
    case Kind::monitor_message:
      return Within("monitor frame", length, 1, FrameLimits::kMonitor);
    case Kind::down_message:
      return Within("down frame", length, 1, FrameLimits::kDown);
    case Kind::heartbeat:
      return Within("heartbeat", length, 0, 0);
    case Kind::routed_message:
      return absl::InvalidArgumentError(
          "a message for another process was sent, and Troupe forwards no messages");
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("a frame is of the unknown kind ", static_cast<unsigned char>(header_[0])));
  }
}

absl::Status FrameGuard::JudgeHandshake(std::uint32_t length) {
  const bool accepted = side_ == Side::kAccepted;
  const bool is_client = static_cast<Kind>(header_[0]) == Kind::client_handshake;
  if (accepted != is_client)
    return absl::InvalidArgumentError("the handshake is the one of the other side of a connection");
  // A client says who it is when it has connected, and once more when it has heard who we are.
  if (++handshakes_ > (accepted ? 2 : 1)) return absl::InvalidArgumentError("there are too many handshakes");
  return Within("handshake", length, 1,
                accepted ? FrameLimits::kClientHandshake : FrameLimits::kServerHandshake);
}

absl::Status FrameGuard::EndFrame() {
  if (!is_handshake_) return absl::OkStatus();
  handshaken_ = true;
  auto said = std::exchange(said_, {});
  if (handshakes_ == 1) identity_ = std::move(said);
  // CAF would file one connection under two nodes, and keep the second when the connection has gone.
  else if (said != identity_)
    return absl::InvalidArgumentError("the second handshake names another node than the first");
  return absl::OkStatus();
}

}  // namespace troupe::actors
