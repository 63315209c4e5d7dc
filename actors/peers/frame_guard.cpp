#include "actors/peers/frame_guard.hpp"

#include <algorithm>
#include <caf/binary_deserializer.hpp>
#include <caf/binary_serializer.hpp>
#include <caf/io/basp/header.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "actors/peers/message_rights.hpp"
#include "base/status.hpp"

namespace troupe::actors {

namespace {

using Kind = caf::io::basp::message_type;

constexpr std::size_t kFlagsAt = 3;
constexpr std::size_t kLengthAt = 4;
constexpr std::size_t kSourceAt = 16;
constexpr std::size_t kSourceEnd = 24;
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

std::string Written(const caf::node_id& node) {
  std::vector<char> bytes;
  caf::binary_serializer sink(nullptr, bytes);
  if (sink(node)) return {};
  return {bytes.begin(), bytes.end()};
}

// A TLS record of a handshake or an alert.
bool LooksLikeTls(std::span<const char> header) {
  return (header[0] == 0x16 || header[0] == 0x15) && header[1] == 0x03;
}

// The names of a message's types at the beginning of its payload. Empty: there is too little of it yet.
// InvalidArgument for what Troupe never writes.
absl::StatusOr<std::optional<std::string_view>> TypesIn(std::string_view payload) {
  constexpr std::string_view kFront("\0\0\0", 3);  // no actors to forward to; no number of a type
  constexpr std::string_view kTuple = "@<>+";
  if (!kFront.starts_with(payload.substr(0, kFront.size())))
    return absl::InvalidArgumentError("a message is to be forwarded, or is not a tuple");
  std::size_t at = kFront.size(), length = 0;
  for (int shift = 0;; shift += 7) {
    if (at >= payload.size()) return std::optional<std::string_view>();
    const auto low = static_cast<unsigned char>(payload[at++]);
    length |= static_cast<std::size_t>(low & 0x7f) << shift;
    if ((low & 0x80) == 0) break;
    if (shift > 0) return absl::InvalidArgumentError("a message names more types than Troupe knows");
  }
  if (at + length > FrameLimits::kLookedAt)
    return absl::InvalidArgumentError("a message names more types than Troupe knows");
  if (payload.size() < at + length) return std::optional<std::string_view>();
  auto types = payload.substr(at, length);
  if (!types.starts_with(kTuple)) return absl::InvalidArgumentError("a message has no content");
  types.remove_prefix(kTuple.size());
  return std::optional(types);
}

}  // namespace

FrameGuard::FrameGuard(Side side, security::Roles roles, const caf::node_id& own)
    : handshakes_(side), roles_(roles), own_(Written(own)) {}

absl::Status FrameGuard::See(std::span<const char> bytes) {
  while (!bytes.empty()) TROUPE_RETURN_IF_ERROR(payload_left_ > 0 ? SeePayload(bytes) : SeeHeader(bytes));
  return absl::OkStatus();
}

absl::Status FrameGuard::SeeHeader(std::span<const char>& bytes) {
  const auto size = std::min(header_.size() - header_seen_, bytes.size());
  std::copy_n(bytes.begin(), size, header_.begin() + static_cast<std::ptrdiff_t>(header_seen_));
  header_seen_ += size;
  bytes = bytes.subspan(size);
  if (first_ && header_seen_ >= 2 && LooksLikeTls(header_))
    return absl::InvalidArgumentError(
        "the other end speaks TLS, and this connection has none: give both programs certificates of one "
        "cluster with --tls-dir");
  if (header_seen_ < header_.size()) return absl::OkStatus();
  header_seen_ = 0;
  first_ = false;
  TROUPE_RETURN_IF_ERROR(JudgeHeader());
  payload_left_ = LengthIn(header_);
  judged_ = payload_left_ == 0;
  return absl::OkStatus();
}

absl::Status FrameGuard::SeePayload(std::span<const char>& bytes) {
  const auto size = std::min<std::size_t>(payload_left_, bytes.size());
  payload_left_ -= static_cast<std::uint32_t>(size);
  const std::string_view piece(bytes.data(), size);
  bytes = bytes.subspan(size);
  if (judged_) return absl::OkStatus();
  const bool all = payload_left_ == 0;
  if (seen_.empty()) TROUPE_RETURN_IF_ERROR(JudgePayload(piece.substr(0, FrameLimits::kLookedAt), all));
  if (!judged_) {
    seen_.append(piece.substr(0, FrameLimits::kLookedAt - seen_.size()));
    TROUPE_RETURN_IF_ERROR(JudgePayload(seen_, all));
  }
  if (judged_) seen_.clear();
  return absl::OkStatus();
}

absl::Status FrameGuard::JudgeHeader() {
  const auto length = LengthIn(header_);
  const auto kind = static_cast<Kind>(header_[0]);
  if (kind == Kind::client_handshake || kind == Kind::server_handshake)
    return handshakes_.JudgeHeader(kind == Kind::client_handshake, length);
  if (!handshaken()) {
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

absl::Status HandshakeGuard::JudgeHeader(bool is_client, std::uint32_t length) {
  const bool accepted = side_ == Side::kAccepted;
  if (accepted != is_client)
    return absl::InvalidArgumentError("the handshake is the one of the other side of a connection");
  // A client names itself when it has connected, and once more when it has heard the name of the server.
  if (++count_ > (accepted ? 2 : 1)) return absl::InvalidArgumentError("there are too many handshakes");
  return Within("handshake", length, 1,
                accepted ? FrameLimits::kClientHandshake : FrameLimits::kServerHandshake);
}

absl::Status FrameGuard::JudgePayload(std::string_view seen, bool all) {
  const bool enough = all || seen.size() == FrameLimits::kLookedAt;
  switch (static_cast<Kind>(header_[0])) {
    case Kind::direct_message:
      return JudgeMessage(seen, enough);
    case Kind::monitor_message:
    case Kind::down_message:
      return JudgeRoute(seen, enough);
    default:
      if (!enough) return absl::OkStatus();
      judged_ = true;
      return handshakes_.JudgeNode(seen);
  }
}

absl::Status HandshakeGuard::JudgeNode(std::string_view seen) {
  caf::binary_deserializer source(nullptr, seen.data(), seen.size());
  caf::node_id node;
  const bool read = !source(node) && node;
  if (!read || (side_ == Side::kAccepted && source.remaining() > 0))
    return absl::InvalidArgumentError("a handshake names no process");
  const auto text = seen.substr(0, seen.size() - source.remaining());
  // CAF would file one connection under two nodes, and keep the second when the connection has gone.
  if (done_ && text != node_text_)
    return absl::InvalidArgumentError("the second handshake names another node than the first");
  node_text_ = text;
  node_ = std::move(node);
  done_ = true;
  return absl::OkStatus();
}

// From the process of this connection to this one: CAF would take it for any other, or pass it on.
absl::Status FrameGuard::JudgeRoute(std::string_view seen, bool all) {
  const auto route = handshakes_.node_text() + own_;
  if (seen.size() < route.size() && !all) return absl::OkStatus();
  judged_ = true;
  if (seen.starts_with(route)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "a frame about an actor's end is between other processes than those of this connection");
}

absl::Status FrameGuard::JudgeMessage(std::string_view seen, bool all) {
  TROUPE_ASSIGN_OR_RETURN(const auto types, TypesIn(seen));
  if (!types.has_value())
    return all ? absl::InvalidArgumentError("a message ends before it says what it is") : absl::OkStatus();
  judged_ = true;
  const bool to_named =
      (static_cast<unsigned char>(header_[kFlagsAt]) & caf::io::basp::header::named_receiver_flag) != 0;
  if (to_named != IsForNamedActor(*types))
    return absl::InvalidArgumentError("a message is for an actor that is not to be found by name");
  const bool has_sender = std::any_of(header_.begin() + kSourceAt, header_.begin() + kSourceEnd,
                                      [](char byte) { return byte != 0; });
  return CheckMessage(*types, roles_, has_sender);
}

}  // namespace troupe::actors
