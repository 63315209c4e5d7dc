// The daemon's end of the link to one GPU worker. Knows no actors: actors/ wraps it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "gpu/worker/control_page.hpp"
#include "proto/worker.pb.h"
#include "transport/liveness.hpp"
#include "transport/ring.hpp"
#include "transport/unix_socket.hpp"

namespace troupe::gpu {

// What a worker is given at adoption. The descriptors stay the caller's.
struct AdoptionGifts {
  int host_region = -1;
  int device_memory = -1;  // -1 for a device that has its own
  int links = -1;          // -1 for a device with real ones
};

// The key that a worker serves, when it refused an adoption for another key; nothing for any other status.
[[nodiscard]] std::optional<std::string> ServedRuntime(const absl::Status& status);

// One adopted worker.
//   Adopt -> open -> closed (the worker died, dropped us for a newer daemon, or Close)
// Send and the getters from any thread; Receive and its doorbell belong to one thread, the LinkReader's.
// Destroying the connection lets go of the worker, which lives on for its lease.
class WorkerConnection {
 public:
  // Waits until a worker listens at the path (it was just started) or `timeout`. `process` is what
  // StartWorker gave, invalid when the worker was there before: then it is opened by the pid that the kernel
  // reports. FailedPrecondition: another daemon has it, or a newer one had, or it serves another key
  // (ServedRuntime). NotFound: no process listened. Unavailable: the process ended meanwhile.
  // DeadlineExceeded: it listens and does not answer. Blocks; not for actors.
  static absl::StatusOr<std::unique_ptr<WorkerConnection>> Adopt(const std::string& socket,
                                                                 const proto::AdoptHello& hello,
                                                                 const AdoptionGifts& gifts,
                                                                 transport::ProcessHandle process,
                                                                 Duration timeout);

  // ResourceExhausted when the ring is full (later there is room again), InvalidArgument for an order larger
  // than half of the ring, Unavailable after Close. Never blocks.
  absl::Status Send(const proto::WorkerOrder& order);

  // False when there is nothing now. DataLoss when what the worker wrote makes no sense: give it up.
  absl::StatusOr<bool> Receive(proto::WorkerOutcome& outcome);
  transport::RingReader& reader() { return outcomes_; }

  // As the worker described itself at adoption: what is resident, prepared, its generation.
  [[nodiscard]] const proto::WorkerDescription& description() const { return description_; }
  [[nodiscard]] const proto::ArenaRef& output_arena() const { return output_arena_; }
  // The same, mapped: outputs can be read without asking the worker, and after its death.
  [[nodiscard]] const std::shared_ptr<const transport::MemoryFile>& output_memory() const {
    return output_memory_;
  }
  [[nodiscard]] const transport::ProcessHandle& process() const { return process_; }
  [[nodiscard]] int socket_fd() const { return control_.fd(); }
  [[nodiscard]] ControlSnapshot Progress() const { return ReadControlPage(control_page_); }
  // The memory that the worker uses, when the device has none of its own. A worker that outlived its daemon
  // keeps the memory it had. Keep it for the next worker of this GPU.
  [[nodiscard]] transport::UniqueFd TakeDeviceMemory() { return std::move(device_memory_); }
  absl::Status Kill() const { return process_.Signal(9); }
  // Ends the adoption: the worker forgets what it owed us and waits for another daemon.
  void Close();

 private:
  struct Parts;
  explicit WorkerConnection(Parts parts);
  static absl::StatusOr<Parts> Shake(transport::UnixConnection control, const proto::AdoptHello& hello,
                                     const AdoptionGifts& gifts, Time deadline);

  std::mutex send_mutex_;
  transport::UnixConnection control_;
  std::optional<transport::RingWriter> orders_;  // guarded by send_mutex_; none after Close
  transport::RingReader outcomes_;
  transport::MemoryFile control_page_;
  transport::UniqueFd device_memory_;
  transport::ProcessHandle process_;
  proto::WorkerDescription description_;
  proto::ArenaRef output_arena_;
  std::shared_ptr<const transport::MemoryFile> output_memory_;
};

}  // namespace troupe::gpu
