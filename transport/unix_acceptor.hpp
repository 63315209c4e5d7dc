// UNIX ACCEPTOR: accepts connections at a Unix socket on behalf of an event loop, and counts the connections
// that it refuses.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "transport/socket_refusals.hpp"
#include "transport/unix_socket.hpp"

namespace troupe::transport {

// When the system has no descriptor left, the acceptor pauses: a loop that tried again at once would spin, as
// the connection stays in the listener's queue. One thread.
class UnixAcceptor {
 public:
  static constexpr Duration kPause = std::chrono::milliseconds(100);

  UnixAcceptor(UnixListener listener, std::shared_ptr<SocketRefusals> refusals)
      : listener_(std::move(listener)), refusals_(std::move(refusals)) {}
  // `refusals` null: counted, and not shown.
  static absl::StatusOr<UnixAcceptor> Listen(const std::string& path,
                                             std::shared_ptr<SocketRefusals> refusals);

  // To be polled for POLLIN; -1, which poll ignores, during a pause.
  [[nodiscard]] int fd(Time now) const { return now < resumes_ ? -1 : listener_.fd(); }
  // When the loop has to wake up for the end of a pause; Time::max() when there is none.
  [[nodiscard]] Time wakes(Time now) const { return now < resumes_ ? resumes_ : Time::max(); }
  // The next connection of a process of the same user or of root; nothing when there is none.
  std::optional<UnixConnection> Accept(Time now);
  [[nodiscard]] const std::string& path() const { return listener_.path(); }
  [[nodiscard]] SocketRefusals& refusals() { return *refusals_; }

 private:
  UnixListener listener_;
  std::shared_ptr<SocketRefusals> refusals_;
  Time resumes_ = Time::min();
};

}  // namespace troupe::transport
