// FRAME GUARD: follows the frames of one connection between processes (CAF's BASP: a header of 32 bytes that
// claims a length, then so many bytes) and says which frame the other end may not send. It judges each header
// before CAF sees it: CAF would allocate whatever the header claims, and reads a handshake that has no bytes
// through a null pointer. And it judges the beginning of each payload: which process the frame speaks for,
// and whether a peer of these roles may send a message of these types (message_rights.hpp), to whichever
// actor.
//
//   accepted by us: client handshake -> (the same again, once) and messages
//   dialled by us:  server handshake -> messages
#pragma once

#include <array>
#include <caf/node_id.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "security/identity.hpp"

namespace troupe::actors {

// The longest payload of each kind of frame, in bytes.
struct FrameLimits {
  static constexpr std::uint32_t kClientHandshake = 128;         // a node's id
  static constexpr std::uint32_t kServerHandshake = 256u << 10;  // with an actor's interface
  static constexpr std::uint32_t kMonitor = 256;                 // two nodes' ids
  static constexpr std::uint32_t kDown = 64u << 10;              // and why an actor ended
  // The largest message that Troupe sends is the list of all functions for the shell; an inference of the shell
  // has 16 MiB, a part of a model 4 MiB.
  static constexpr std::uint32_t kMessage = 64u << 20;
  // Of a payload: what is looked at. The names of a message's types end before that.
  static constexpr std::size_t kLookedAt = 512;
};

// The handshakes of one connection: who its peer is.
class HandshakeGuard {
 public:
  enum class Side { kAccepted, kDialled };
  explicit HandshakeGuard(Side side) : side_(side) {}

  // Judges the header of a handshake whose payload has `length` bytes. `is_client`: a client sends it, not a server.
  absl::Status JudgeHeader(bool is_client, std::uint32_t length);
  // Judges the node id of the sending process, with which the payload of a handshake begins. The payload of a
  // client's handshake has nothing else.
  absl::Status JudgeNode(std::string_view seen);

  [[nodiscard]] bool done() const { return done_; }
  // The peer's process, once done; and as it is written in frames.
  [[nodiscard]] const caf::node_id& node() const { return node_; }
  [[nodiscard]] const std::string& node_text() const { return node_text_; }

 private:
  const Side side_;
  int count_ = 0;
  bool done_ = false;
  std::string node_text_;
  caf::node_id node_;
};

// One connection's; one thread at a time.
class FrameGuard {
 public:
  using Side = HandshakeGuard::Side;
  // `roles` of the peer; `own`: this process.
  FrameGuard(Side side, security::Roles roles, const caf::node_id& own);

  // The next bytes of the connection, in any pieces. InvalidArgument or PermissionDenied for a frame that the
  // other end may not send, with what it is; nothing of the connection may be used after that.
  absl::Status See(std::span<const char> bytes);
  [[nodiscard]] bool handshaken() const { return handshakes_.done(); }
  // The peer's process, once handshaken.
  [[nodiscard]] const caf::node_id& node() const { return handshakes_.node(); }

 private:
  absl::Status SeeHeader(std::span<const char>& bytes);
  absl::Status SeePayload(std::span<const char>& bytes);
  absl::Status JudgeHeader();
  // `seen` is the beginning of the payload, or with `all` the whole of it. Sets judged_ when it has seen
  // enough.
  absl::Status JudgePayload(std::string_view seen, bool all);
  absl::Status JudgeMessage(std::string_view seen, bool all);
  absl::Status JudgeRoute(std::string_view seen, bool all);

  HandshakeGuard handshakes_;
  const security::Roles roles_;
  const std::string own_;  // as it is written in frames
  std::array<char, 32> header_{};
  std::size_t header_seen_ = 0;
  std::uint32_t payload_left_ = 0;
  std::string seen_;    // of the payload that is being read, until it is judged
  bool judged_ = true;  // the payload that is being read
  bool first_ = true;   // no header has come yet
};

}  // namespace troupe::actors
