// STATE HANDLER: brings functions' states onto the device and back, over the device's links. What they are, and whose
// turn it is: the state table. The main loop's thread, but for the fetcher.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpu/swap/device_links.hpp"
#include "gpu/worker/limits.hpp"
#include "gpu/worker/reply.hpp"
#include "gpu/worker/residency.hpp"
#include "gpu/worker/state_table.hpp"
#include "gpu/worker/task_queue.hpp"
#include "proto/worker.pb.h"
#include "transport/local_channel.hpp"

namespace troupe::gpu {

class StateHandler {
 public:
  using ChannelPtr = std::shared_ptr<transport::LocalChannel>;
  StateHandler(DeviceMemory& memory, TaskQueue& queue, DeviceLinks& links, Residency& residency,
               const WorkerLimits& limits);
  ~StateHandler();
  // `changed` is told when runs may go on, or have to be given up; `charge` of the bytes of each copy, in or out, and whom they
  // are charged to.
  using Charge = std::function<void(const std::string& meter, Bytes moved)>;
  void Connect(std::function<void()> changed, Charge charge) {
    changed_ = std::move(changed);
    charge_ = std::move(charge);
  }

  // The states that come with a model; `bring_model` gives the order for its weights to the residency, with
  // the reply that it is handed. The answer comes when all is there: what the model's was, or why the states
  // did not come. NoFit counts both.
  void SwapIn(ChannelPtr channel, const proto::SwapInOrder& order, std::optional<Time> deadline, Reply reply,
              const std::function<void(Reply)>& bring_model);
  // Writes back what has changed, then evicts. A model whose states cannot be written stays.
  void Evict(ChannelPtr channel, const std::string& digest, Reply reply);
  // Answers with the state of the function that the order names (NotFound when it is not here), or with all
  // states of the model, or of those with the prefix, that have changed; ResourceExhausted when the channel's arena has
  // no room for them. Or drops them instead.
  void WriteBack(ChannelPtr channel, const proto::WriteBackOrder& order, Reply reply);
  // The daemon is gone: the next one asks anew for all that it may not have got.
  void Abandon();
  [[nodiscard]] Bytes bytes_in() const { return bytes_in_; }
  [[nodiscard]] Bytes bytes_out() const { return bytes_out_; }

 private:
  using StatePtr = StateTable::StatePtr;
  // The parts of one swap-in.
  struct Arrival {
    explicit Arrival(Reply reply) : reply(std::move(reply)) {}
    Reply reply;
    std::size_t open = 1;
    std::vector<StatePtr> states;
    proto::WorkerOutcome model;  // what became of the weights
    absl::Status failed;         // of the states
  };
  // The states of one model on their way out.
  struct Writing {
    ChannelPtr channel;
    std::function<void(absl::Status, proto::StateOutcome)> then;
    std::size_t open = 1;
    std::uint64_t life = 0;
    bool unchanged = false;  // states that have not changed are written, too
    Bytes inlined;
    absl::Status failed;
    proto::StateOutcome outcome;
  };
  using ArrivalPtr = std::shared_ptr<Arrival>;
  using WritingPtr = std::shared_ptr<Writing>;
  absl::Status Begin(const proto::SwapInOrder& order, std::vector<StatePtr>& states);
  void Fetch(const ChannelPtr& channel, const StatePtr& state, std::shared_ptr<proto::StateImage> image,
             std::optional<Time> deadline, const ArrivalPtr& arrival);
  void CopyIn(const StatePtr& state, std::shared_ptr<proto::StateImage> image,
              std::vector<transport::TensorData> data, std::optional<Time> deadline,
              const ArrivalPtr& arrival);
  void Landed(const StatePtr& state, const absl::Status& status, const ArrivalPtr& arrival);
  void FailAll(const std::vector<StatePtr>& states, const absl::Status& why);
  void Close(const ArrivalPtr& arrival);
  // Those of these states that have changed, or may change before their turn comes.
  [[nodiscard]] static std::vector<StatePtr> Changed(std::vector<StatePtr> states);
  void DropNamed(const proto::WriteBackOrder& order);
  void Write(ChannelPtr channel, const std::vector<StatePtr>& states, bool unchanged,
             std::function<void(absl::Status, proto::StateOutcome)> then);
  void CopyOut(const StatePtr& state, std::uint64_t ticket, const WritingPtr& writing);
  void Written(const StatePtr& state, std::uint64_t ticket, const absl::Status& status,
               std::vector<transport::Reservation>& rooms, const WritingPtr& writing);
  absl::StatusOr<std::vector<transport::Reservation>> Reserve(const DeviceState& state,
                                                              Writing& writing) const;
  static void Close(const WritingPtr& writing);

  DeviceMemory& memory_;
  TaskQueue& queue_;
  DeviceLinks& links_;
  Residency& residency_;
  const WorkerLimits& limits_;
  std::function<void()> changed_ = [] {};
  Charge charge_ = [](const std::string&, Bytes) {};
  std::vector<std::byte> zeros_;
  std::uint64_t life_ = 0;  // counts daemons
  Bytes bytes_in_;
  Bytes bytes_out_;
  TaskThread fetcher_;  // ends first: meets arenas for the first time
};

}  // namespace troupe::gpu
