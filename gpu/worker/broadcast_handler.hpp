// BROADCAST HANDLER: sends or receives a model that several GPUs of the node take at once.
//
// The first GPU's worker has the model, or swaps it in as usual, and sends its groups on as they arrive; the
// other workers receive them, and run with the first group. Before that they meet at a socket of the first
// worker: when all are there it tells them how to join. A member that does not come, or that goes, ends the
// broadcast for all, and they take what they miss from the host.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "gpu/device/device.hpp"
#include "gpu/swap/model_load.hpp"
#include "gpu/worker/limits.hpp"
#include "gpu/worker/task_queue.hpp"
#include "proto/worker.pb.h"
#include "transport/broadcast.hpp"
#include "transport/meeting_place.hpp"

namespace troupe::gpu {

// A worker's part in a broadcast.
struct BroadcastPart {
  std::string meeting;
  std::string socket;             // of the first one's meeting place
  transport::BroadcastSlot slot;  // without its identity, which the meeting gives
  [[nodiscard]] bool sends() const { return slot.rank == 0; }
};
// What an order says of it to the worker of `gpu`, which may meet in `directory` alone. InvalidArgument names
// what does not add up.
[[nodiscard]] absl::StatusOr<BroadcastPart> ReadBroadcast(const proto::Broadcast& order, std::uint32_t gpu,
                                                          const std::string& directory);

// One thread that sends and receives, one broadcast after the other: the node gives a GPU one at a time. The
// calls are the main loop's. The destructor breaks off what is under way; it ends before what the callbacks
// use.
class BroadcastHandler {
 public:
  struct Setup {
    std::string socket;  // where others meet for what this worker sends; "": it takes part in none
    Bytes piece{};       // in which it sends
    std::shared_ptr<transport::SocketRefusals> refusals{};  // at that socket; null: not shown
  };
  BroadcastHandler(Device& device, Setup setup, const WorkerLimits& limits);
  ~BroadcastHandler();

  // Whether this worker can send and receive at all.
  [[nodiscard]] bool able() const { return place_ != nullptr; }
  // Where it is met.
  [[nodiscard]] std::string socket() const { return able() ? place_->path() : std::string(); }

  // Sends the weights as they arrive; `load` null: they are there. `ended`, on the handler's thread: nothing
  // reads them any more.
  void Send(const BroadcastPart& part, DeviceRange weights, std::shared_ptr<ModelLoad> load,
            std::function<void()> ended);
  // The models will not be sent: the guests that wait for them are told so.
  void Refuse(const BroadcastPart& part, const absl::Status& why);
  // Tells `load` of its groups as they arrive in `weights`; `first` when the first one has. `ended`, on the
  // handler's thread: OK when all have, else nothing more comes and what has arrived stays.
  void Receive(const BroadcastPart& part, DeviceRange weights, std::shared_ptr<ModelLoad> load,
               std::function<void()> first, std::function<void(const absl::Status&)> ended);

 private:
  bool Enter();
  void Leave();
  absl::Status SendAll(const BroadcastPart& part, DeviceRange weights, ModelLoad* load);
  absl::Status ReceiveAll(const BroadcastPart& part, DeviceRange weights, ModelLoad& load,
                          const std::function<void()>& first);
  absl::StatusOr<transport::BroadcastEnd*> Join(const transport::BroadcastSlot& slot);
  absl::Status AwaitGroups(ModelLoad& load, Bytes bytes);
  [[nodiscard]] std::shared_ptr<transport::BroadcastEnd> current();

  Device& device_;
  const Setup setup_;
  const WorkerLimits& limits_;
  std::unique_ptr<transport::MeetingPlace> place_;  // null: not able
  std::mutex mutex_;
  std::shared_ptr<transport::BroadcastEnd> current_;  // guarded by mutex_, as all below
  bool closing_ = false;
  std::size_t under_way_ = 0;
  TaskThread thread_;  // ends first
};

}  // namespace troupe::gpu
