// SHELL TENSORS: how tensors of shells travel. A shell has no arena that other processes read, so all its tensors come
// and go inside messages; workers take only small ones from there. The front puts large inputs into its own arena while
// their request is under way, and brings the outputs of a worker's arena, on whatever host it is, into the answer.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "base/units.hpp"
#include "proto/request.pb.h"
#include "transport/tensor_channel.hpp"

namespace troupe::actors {

// Inputs that lie in an arena until this goes.
class PlacedInputs {
 public:
  explicit PlacedInputs(transport::TensorChannel& channel) : channel_(channel) {}
  ~PlacedInputs();
  PlacedInputs(const PlacedInputs&) = delete;
  PlacedInputs& operator=(const PlacedInputs&) = delete;
  // Moves each input that is too large for a message to a worker. ResourceExhausted: the arena has no room for one.
  absl::Status Place(proto::InferRequest& request);

 private:
  transport::TensorChannel& channel_;
  std::vector<proto::TensorRef> places_;
};

// The most bytes of outputs that one answer brings.
inline constexpr Bytes kMostShellOutputs = MiB(48);  // a message has at most 64 MiB

// Brings outputs from arenas into a reply. A reply whose outputs are too large, or lost, becomes that error. The channel may
// call back on a thread of its own: `inside` wraps a callback so that it runs in the caller's actor. `done` is called
// once, in that actor.
using FetchDone = transport::TensorChannel::Done;
void BringOutputs(transport::TensorChannel& channel, proto::InferReply reply,
                  const std::function<FetchDone(FetchDone)>& inside,
                  std::function<void(proto::InferReply)> done);

}  // namespace troupe::actors
