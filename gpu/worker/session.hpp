// One adoption, from the worker's side: the link to the daemon that has this worker now.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "gpu/worker/host_model.hpp"
#include "gpu/worker/region_pins.hpp"
#include "proto/worker.pb.h"
#include "transport/local_channel.hpp"
#include "transport/ring.hpp"
#include "transport/unix_socket.hpp"

namespace troupe::gpu {

// Made anew for each adoption, with rings and an arena of its own: what the last daemon wrote or left unread
// cannot disturb the next. Dropped when the daemon closes its end. The main loop's thread.
class Session {
 public:
  struct Options {
    std::string arena_socket;  // of this session's own: runs of the last one may still hold theirs
    Bytes arena;
    std::shared_ptr<transport::SocketRefusals> refusals{};  // at the arena's socket; null: not shown
    std::shared_ptr<RegionPins> pins{};                     // of the region; null: it is registered whole
  };
  static absl::StatusOr<std::shared_ptr<Session>> Open(transport::UnixConnection control,
                                                       const proto::AdoptHello& hello, RegionPtr region,
                                                       const Options& options);

  // Sends the answer to the hello with the session's descriptors; `device_memory` -1: none.
  absl::Status Welcome(const proto::WorkerDescription& description, int control_page, int device_memory);

  // False when there is none now; DataLoss when the ring makes no sense (any more).
  absl::StatusOr<bool> Read(transport::RingRecord& record);
  [[nodiscard]] transport::RingReader& orders() { return orders_.end; }

  // Writes the outcome, or keeps it until the daemon has made room.
  void Answer(const proto::WorkerOutcome& outcome);
  // Writes what was kept; false while something is left. No orders are read meanwhile, so that what is kept
  // is bounded by what is in flight.
  bool Flush();
  [[nodiscard]] bool broken() const { return broken_; }

  [[nodiscard]] int control_fd() const { return control_.fd(); }
  // False when the daemon has closed its end, or said something that it should not have.
  [[nodiscard]] bool StillThere();
  [[nodiscard]] const RegionPtr& region() const { return region_; }
  // An order names this model.
  void Want(const HostModel& host, bool urgent);
  void DescribePins(proto::WorkerDescription& description) const;
  [[nodiscard]] const std::shared_ptr<transport::LocalChannel>& channel() const { return channel_; }

 private:
  // A ring, and our end of it.
  template <class End>
  struct Ring {
    std::shared_ptr<transport::RingMemory> memory;
    End end;
  };
  using OrderRing = Ring<transport::RingReader>;
  using OutcomeRing = Ring<transport::RingWriter>;
  Session(transport::UnixConnection control, RegionPtr region, const Options& options,
          std::shared_ptr<transport::LocalChannel> channel, OrderRing orders, OutcomeRing outcomes);
  absl::StatusOr<bool> Write(const std::string& outcome, std::uint64_t sequence);

  transport::UnixConnection control_;
  RegionPtr region_;
  const std::shared_ptr<RegionPins> pins_;
  std::shared_ptr<transport::LocalChannel> channel_;
  OrderRing orders_;
  OutcomeRing outcomes_;
  std::deque<std::pair<std::uint64_t, std::string>> kept_;
  bool broken_ = false;
};

}  // namespace troupe::gpu
