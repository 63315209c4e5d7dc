// Hands out the descriptors of this process's arenas at a Unix socket, and the client that maps others'
// arenas.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "transport/arena.hpp"
#include "transport/memory_file.hpp"
#include "transport/unix_acceptor.hpp"

namespace troupe::transport {

// One small thread of its own that sleeps in poll: started by Start, joined by the destructor. Answers "arena
// id?" with the descriptor and the list of arenas that it knows. At most 64 connections at once: for one
// more, the connection that was silent for longest is closed. A connection that sends nonsense, or nothing
// for 5 s, is closed and counted. Add and Remove from any thread.
class ArenaServer {
 public:
  static constexpr int kArenas = 32;
  static constexpr std::size_t kPeers = 64;
  // `refusals` null: counted, and not shown.
  static absl::StatusOr<std::unique_ptr<ArenaServer>> Start(
      const std::string& socket_path, std::shared_ptr<SocketRefusals> refusals = nullptr);
  ~ArenaServer();
  // ResourceExhausted beyond kArenas.
  absl::Status Add(std::shared_ptr<Arena> arena);
  // Any other memory, under an id of UniqueId().
  absl::Status Add(std::uint64_t id, UniqueFd descriptor);
  // A process that asks from now on is told that it is not there (any more).
  void Remove(std::uint64_t arena);
  [[nodiscard]] const std::string& path() const { return acceptor_.path(); }

 private:
  struct Peer;
  struct Shown {
    std::shared_ptr<const void> keeps;  // the descriptor open
    int descriptor = -1;
  };
  absl::Status Show(std::uint64_t id, Shown shown);
  ArenaServer(UnixAcceptor acceptor, UniqueFd wake);
  void Serve();
  bool Answer(UnixConnection& peer, const SocketMessage& request);
  bool Hear(Peer& peer, bool ready, Time now);
  bool Step(std::vector<Peer>& peers);
  void Accept(std::vector<Peer>& peers, Time now);

  UnixAcceptor acceptor_;
  UniqueFd wake_;
  std::mutex mutex_;
  std::map<std::uint64_t, Shown> arenas_;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace troupe::transport
