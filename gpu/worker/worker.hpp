// WORKER: the process that owns one GPU. Its main loop waits for orders, for what its threads and the device
// have finished, and for daemons that want to adopt it.
//
//   listening -> adopted       a daemon said hello
//   adopted -> waiting         the daemon closed, or a newer one came
//   waiting -> adopted         a daemon said hello
//   waiting -> ended           the lease is over
//   adopted -> finishing       Shutdown or SIGTERM: the runs that compute end first
//   finishing -> ended
// The device is opened at the first adoption and lives until the end: models stay over re-adoptions.
#pragma once

#include <poll.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/worker/control_page.hpp"
#include "gpu/worker/handshakes.hpp"
#include "gpu/worker/order_handler.hpp"
#include "gpu/worker/ownership.hpp"
#include "gpu/worker/region_pins.hpp"
#include "gpu/worker/session.hpp"
#include "gpu/worker/task_queue.hpp"
#include "gpu/worker/weight_record.hpp"
#include "gpu/worker/worker_options.hpp"
#include "transport/unix_acceptor.hpp"

namespace troupe::gpu {

class Worker {
 public:
  // AlreadyExists when a living worker listens at the socket. Writes last words into its control page from
  // here on.
  static absl::StatusOr<std::unique_ptr<Worker>> Create(WorkerOptions options);
  ~Worker();

  // Until the end; an ExitCode. SIGTERM and SIGINT, which the caller has blocked, are read from `signals` (a
  // signalfd).
  int Run(int signals);
  // The device did not finish: destructors would wait for it for ever, so the process just exits.
  [[nodiscard]] bool stuck() const { return ending_.stuck; }

 private:
  // When the loop looks again at what does not wake it.
  struct Pace {
    Time next_beat;
    Time next_poll;
    Time idle_since;
  };
  struct Ending {
    bool terminated = false;  // a signal came
    bool stuck = false;
    std::optional<Time> deadline{};  // for what computes
  };
  Worker(WorkerOptions options, std::shared_ptr<transport::SocketRefusals> refusals,
         transport::UnixAcceptor acceptor, transport::MemoryFile page, std::unique_ptr<TaskQueue> queue);
  std::optional<int> Step(Time now);
  bool ReadOrders();
  std::optional<int> Beat(Time now);
  [[nodiscard]] Time NextDue() const;
  bool Arm();
  void Disarm();
  void Poll(Time until);
  void Refuse(transport::UnixConnection& connection, const absl::Status& status);
  absl::Status Adopt(transport::UnixConnection connection, transport::SocketMessage message);
  absl::Status OpenOrKeepDevice(const proto::AdoptHello& hello,
                                std::vector<transport::UniqueFd>& descriptors);
  absl::StatusOr<std::shared_ptr<WeightRecord>> OpenRecord(const transport::UniqueFd& memory, Bytes size);
  void ShareLinks(const std::shared_ptr<transport::LinkBuckets>& links);
  struct OpenedRegion {
    RegionPtr region;
    std::shared_ptr<RegionPins> pins;  // null: of a virtual device, or none are wanted
  };
  absl::StatusOr<OpenedRegion> OpenRegion(transport::UniqueFd descriptor);
  void DropSession(const std::string& why);
  void Say(const std::string& words);

  WorkerOptions options_;
  const std::shared_ptr<transport::SocketRefusals> refusals_;  // at all sockets of this process
  transport::MemoryFile page_;
  std::unique_ptr<TaskQueue> queue_;
  Handshakes handshakes_;
  Ownership ownership_;
  transport::UniqueFd device_memory_;      // a virtual device's, handed back at each adoption
  std::unique_ptr<OrderHandler> handler_;  // from the first adoption on
  std::shared_ptr<Session>
      session_;  // ends before the order handler: its region is registered with the device
  int signals_ = -1;
  Pace pace_;
  Ending ending_;
};

}  // namespace troupe::gpu
