// The half of a stream endpoint that fetches from others.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstddef>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "security/credentials.hpp"
#include "transport/fetch_wire.hpp"
#include "transport/remote_endpoint.hpp"
#include "transport/stream_connection.hpp"

namespace troupe::transport {

// One fetch, as handed to the loop's thread.
struct StreamFetch {
  EndpointAddress endpoint;
  proto::ArenaRef ref;
  std::span<std::byte> destination;
  std::shared_ptr<void> keeper;
  Time deadline;
  RemoteEndpoint::Done done;
};

// On its loop's thread only. A fetch has a connection for itself while it runs:
//
//   waiting (kConnections of its owner are busy) -> running (on an idle connection, else a new one) -> over
//
// A fetch that is late tells its caller at once, and its connection is closed, since the data may be on their
// way. Connections without a fetch stay open until their peer ends them.
class StreamClient {
 public:
  static constexpr std::size_t kConnections = 8;  // to one owner

  // `credentials`: null without TLS.
  StreamClient(boost::asio::io_context& loop, std::shared_ptr<security::Credentials> credentials)
      : loop_(loop), credentials_(std::move(credentials)) {}

  void Fetch(StreamFetch fetch);
  // Fails everything with Cancelled and closes all connections; the loop must run until nothing is left.
  void Stop();

 private:
  template <class T>
  using Task = StreamConnection::Task<T>;
  using Connection = std::shared_ptr<StreamConnection>;
  struct Pending {
    Pending(boost::asio::io_context& loop, StreamFetch asked) : fetch(std::move(asked)), timer(loop) {}
    StreamFetch fetch;  // over when `done` is null
    boost::asio::steady_timer timer;
    Connection connection;  // while it runs
  };
  using Shared = std::shared_ptr<Pending>;
  struct Owner {
    std::deque<Shared> waiting;
    std::list<Connection> idle;
    std::size_t busy = 0;
  };
  using Owners = std::map<std::string, Owner>;

  void StartNext(const std::string& address);
  Task<void> Run(Shared pending);
  Task<absl::Status> FetchFrom(Owner& owner, Pending& pending);
  Task<absl::Status> Connect(Pending& pending);
  // `answered`: a whole answer's header came.
  Task<absl::Status> FetchOver(StreamConnection& connection, Pending& pending, bool& answered);
  Task<absl::Status> ReadRefusal(StreamConnection& connection, const FetchAnswer& answer);
  // A connection that was made with the present credentials, or null.
  [[nodiscard]] Connection TakeIdle(Owner& owner) const;
  void GiveBack(const std::string& address, Connection connection);
  static void DropIdle(Owner& owner);
  void Late(const Shared& pending);
  void Finish(Pending& pending, absl::Status status);

  boost::asio::io_context& loop_;
  const std::shared_ptr<security::Credentials> credentials_;
  Owners owners_;         // by address; those with nothing to do and no connection are forgotten
  std::set<Shared> all_;  // that are not over
  bool stopped_ = false;
};

}  // namespace troupe::transport
