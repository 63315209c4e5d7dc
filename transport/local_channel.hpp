// The tensor channel of one host: inline up to 64 KiB, else slices of this process's arena and mappings of
// the others'.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "transport/memory_file.hpp"
#include "transport/socket_refusals.hpp"
#include "transport/tensor_channel.hpp"

namespace troupe::transport {

class Arena;
class ArenaClient;
class ArenaServer;

// Owns one arena, the server that hands it out (one thread) and the client that maps others' arenas.
class LocalChannel : public TensorChannel {
 public:
  struct Options {
    std::string name = "troupe";                 // of the arena, for /proc
    std::string socket;                          // path of the descriptor server, in the run directory
    Bytes capacity = MiB(64);                    // of the arena
    std::vector<std::string> directories;        // where others' sockets may lie; empty: anywhere
    std::string endpoint;                        // put into references, for readers on other hosts
    std::string host;                            // "": HostId()
    std::shared_ptr<SocketRefusals> refusals{};  // at the socket; null: counted, and not shown
  };
  static absl::StatusOr<std::unique_ptr<LocalChannel>> Create(Options options);
  ~LocalChannel() override;

  [[nodiscard]] bool Near(const proto::TensorRef& ref) const override;
  absl::StatusOr<Reservation> Reserve(Bytes size) override;
  void FetchAsync(const proto::TensorRef& ref, Duration timeout, Done done) override;
  absl::Status Release(const proto::TensorRef& ref) override;
  absl::Status Retain(const proto::TensorRef& ref) override;
  [[nodiscard]] Bytes used() const override;
  [[nodiscard]] Bytes capacity() const override;

  // Fetch of what needs no other host; FailedPrecondition otherwise.
  absl::StatusOr<TensorData> FetchHere(const proto::TensorRef& ref);
  // As Reserve, but never inline: a place for bytes that arrive from another host.
  absl::StatusOr<Reservation> ReserveSlice(Bytes size);
  [[nodiscard]] const std::shared_ptr<Arena>& arena() const { return arena_; }
  [[nodiscard]] const std::string& host() const { return options_.host; }
  // A reference to this arena without a slice: what AdoptReply carries.
  [[nodiscard]] proto::ArenaRef ArenaAddress() const;
  // Hands out another memory of this process beside the arena, until Withdraw; the reference has no range.
  // ResourceExhausted beyond the server's bound.
  absl::StatusOr<proto::ArenaRef> HandOut(UniqueFd descriptor);
  // A process that asks from now on is told that it is not there.
  void Withdraw(std::uint64_t id);
  // Of another process of this host: what its HandOut gave, and whether it was withdrawn since (NotFound) or
  // its owner is gone (Unavailable). Blocks for one round trip.
  absl::StatusOr<UniqueFd> Ask(const proto::ArenaRef& ref);
  // The owner of these arenas is gone.
  void Forget(const std::string& socket);

 private:
  LocalChannel(Options options, std::shared_ptr<Arena> arena, std::unique_ptr<ArenaServer> server);
  [[nodiscard]] bool Own(const proto::ArenaRef& ref) const;

  const Options options_;
  std::shared_ptr<Arena> arena_;
  std::unique_ptr<ArenaServer> server_;
  std::unique_ptr<ArenaClient> client_;
};

}  // namespace troupe::transport
