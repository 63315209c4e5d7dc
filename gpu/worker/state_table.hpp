// STATE TABLE: what functions keep on the device from one of their runs to the next (a KV cache), or what each of their
// sequences of requests does.
//
//   absent -(Begin)-> coming -(Arrived)-> here -(Drop)-> absent
//   coming -(Fail)-> absent: the runs that wait for it learn why
//
// Each state is there twice: a run reads `now` and writes `next`, and they change places only when the run is
// answered well. So a run that fails, or that is not answered, leaves the state as it was. Its users (runs
// and write-backs) take turns, strictly in the order in which they began to wait.
//
// The node controller plans where states live and when they move. The main loop's thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/device/device.hpp"
#include "gpu/memory/device_memory.hpp"
#include "proto/worker.pb.h"

namespace troupe::gpu {

struct DeviceState {
  struct Tensor {
    proto::TensorSpec spec;  // named as the function's input
    DeviceRange now;
    DeviceRange next;
  };
  // Whose turn it may be; `ready` is called when it is, at once for the first in line. Empty: it asks.
  struct User {
    std::uint64_t ticket = 0;
    std::function<void()> ready;
  };
  std::string function;  // as in StateImage
  std::string digest;    // of the model
  std::string meter;     // as in StateImage
  std::vector<Tensor> tensors;
  std::uint64_t runs = 0;  // that made it
  bool coming = true;      // its bytes are on their way in
  bool changed = false;    // since it was last written back, as far as the daemon that is there may know
  absl::Status failed;     // why it did not come
  std::deque<User> line;

  [[nodiscard]] Bytes size() const;    // on the device, both copies
  [[nodiscard]] Bytes copied() const;  // when it comes or is written back
  // The run whose output this was is answered: what it wrote is the state now.
  void Commit();
};

// What an image asks for: concrete specs with different names. Data, where it is given, is as long as its
// spec says; none stands for zeros. InvalidArgument names the tensor.
absl::Status CheckImage(const proto::StateImage& image);

class StateTable {
 public:
  using StatePtr = std::shared_ptr<DeviceState>;
  explicit StateTable(DeviceMemory& memory) : memory_(memory) {}

  // Null: no state of this function is here or on its way.
  [[nodiscard]] StatePtr Find(const std::string& function) const;
  // Those of the model whose names begin so.
  [[nodiscard]] std::vector<StatePtr> Of(const std::string& digest, const std::string& prefix = "") const;

  // Takes device memory for it, all or nothing: ResourceExhausted. An older state is replaced;
  // FailedPrecondition while a run uses that.
  absl::StatusOr<StatePtr> Begin(const std::string& digest, const proto::StateImage& image);
  void Arrived(DeviceState& state);
  // It will not come, or is not to be used any more: it is absent from now on, those in its line have to
  // leave it, and its memory is free when they have. Nothing is copied to or from it.
  void Fail(const StatePtr& state, const absl::Status& why);
  // Makes the state absent and frees its memory when the requests that wait for it now have had it, unless a further
  // request has begun to wait by then.
  void DropInTurn(const StatePtr& state);
  // Frees the states of a model, which must be unused.
  void Drop(const std::string& digest);

  // Tickets are the caller's own, those of TicketOfOurs apart.
  void Join(DeviceState& state, DeviceState::User user);
  void Leave(DeviceState& state, std::uint64_t ticket);
  [[nodiscard]] std::uint64_t TicketOfOurs() { return kOurs | ++tickets_; }
  [[nodiscard]] static bool MayBegin(const DeviceState& state, std::uint64_t ticket) {
    return !state.coming && state.failed.ok() && !state.line.empty() && state.line.front().ticket == ticket;
  }
  // Another daemon comes, which may not know what the last one was given.
  void MarkAllChanged();
  [[nodiscard]] Bytes bytes() const;

 private:
  static constexpr std::uint64_t kOurs = std::uint64_t{1} << 63U;
  void Free(DeviceState& state);
  static void CallFirst(DeviceState& state);

  DeviceMemory& memory_;
  std::map<std::string, StatePtr> states_;  // by function
  std::uint64_t tickets_ = 0;
};

}  // namespace troupe::gpu
