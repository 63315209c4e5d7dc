// HANDSHAKES: the connections to a worker's socket over which no hello has come yet.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/units.hpp"
#include "transport/unix_acceptor.hpp"
#include "transport/unix_socket.hpp"

namespace troupe::gpu {

// Few, and not for long: `most` at a time, each for `patience`. The main loop's thread.
class Handshakes {
 public:
  Handshakes(transport::UnixAcceptor acceptor, std::shared_ptr<transport::SocketRefusals> refusals,
             std::size_t most, Duration patience)
      : acceptor_(std::move(acceptor)), refusals_(std::move(refusals)), most_(most), patience_(patience) {}

  // What to wait for: the listener, and each connection.
  [[nodiscard]] int listener(Time now) { return acceptor_.fd(now); }
  [[nodiscard]] std::size_t size() const { return waiting_.size(); }
  [[nodiscard]] int fd(std::size_t at) const { return waiting_[at].connection.fd(); }

  void Accept(Time now);
  void EndSilent(Time now);
  struct Hello {
    transport::UnixConnection connection;
    transport::SocketMessage message;
  };
  // The connection can be read: it is not waited for any more. Nothing when it has no message.
  [[nodiscard]] std::optional<Hello> Take(std::size_t at);

 private:
  struct Waiting {
    transport::UnixConnection connection;
    Time deadline;
  };
  transport::UnixAcceptor acceptor_;
  const std::shared_ptr<transport::SocketRefusals> refusals_;  // at all sockets of this process
  const std::size_t most_;
  const Duration patience_;
  std::vector<Waiting> waiting_;
};

}  // namespace troupe::gpu
