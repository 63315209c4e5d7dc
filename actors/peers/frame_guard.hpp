// FRAME GUARD: follows the frames of one connection between processes (CAF's BASP: a header of 32 bytes that
// claims a length, then so many bytes) and says which frame the other end may not send. It judges each header
// before CAF sees it: CAF would allocate whatever the header claims, and reads a handshake that has no bytes
// through a null pointer.
//
//   accepted by us: client handshake -> (the same again, once) and messages
//   dialled by us:  server handshake -> messages
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"

namespace troupe::actors {

// The longest payload of each kind of frame, in bytes.
struct FrameLimits {
  static constexpr std::uint32_t kClientHandshake = 128;         // a node's id
  static constexpr std::uint32_t kServerHandshake = 256u << 10;  // with an actor's interface
  static constexpr std::uint32_t kMonitor = 256;                 // two nodes' ids
  static constexpr std::uint32_t kDown = 64u << 10;              // and why an actor ended
  // The largest message that Troupe sends is a list of all functions; an inference of the shell has 16 MiB,
  // a part of a model 4 MiB.
  static constexpr std::uint32_t kMessage = 64u << 20;
};

// One connection's; one thread at a time.
class FrameGuard {
 public:
  enum class Side { kAccepted, kDialled };
  explicit FrameGuard(Side side) : side_(side) {}

  // The next bytes of the connection, in any pieces. InvalidArgument for a frame that the other end may not
  // send, with what it is; nothing of the connection may be used after that.
  absl::Status See(std::span<const char> bytes);
  [[nodiscard]] bool handshaken() const { return handshaken_; }

 private:
  absl::Status JudgeHeader();
  absl::Status JudgeHandshake(std::uint32_t length);
  // All of a frame has come.
  absl::Status EndFrame();

  const Side side_;
  std::array<char, 32> header_{};
  std::size_t header_seen_ = 0;
  std::uint32_t payload_left_ = 0;
  bool is_handshake_ = false;  // the frame that is being read
  bool handshaken_ = false;
  int handshakes_ = 0;
  std::string said_;      // the payload of the handshake that is being read
  std::string identity_;  // of the first one
};

}  // namespace troupe::actors
