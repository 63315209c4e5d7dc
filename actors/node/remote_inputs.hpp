// REMOTE INPUTS: inputs that lie in an arena of another host are brought into this daemon's own before a
// worker is told of them; workers map the local copy. One entry per request from Bring to Forget:
//
//   waiting (for room) -> fetching -> here -> forgotten
//
// Bounded in bytes: inputs beyond the limit wait, in the order of arrival (credits bound how many wait).
// Owned by the node controller, in whose thread everything happens; transfers run on the channel's. A
// transfer cannot be called back: the bytes of a forgotten request count until it ends, by its timeout at the
// latest.
#pragma once

#include <caf/local_actor.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "actors/core/continuations.hpp"
#include "base/units.hpp"
#include "node/request.hpp"
#include "proto/request.pb.h"
#include "transport/tensor_channel.hpp"

namespace troupe::actors {

struct RemoteInputLimits {
  Bytes bytes = MiB(128);  // fetched or being fetched; the channel's room bounds it, too
  Duration longest =
      std::chrono::seconds(10);  // of one transfer, so that another node is tried within the timeout
};

class RemoteInputs {
 public:
  using Tensors = google::protobuf::RepeatedPtrField<proto::Tensor>;
  using Done = std::function<void(absl::StatusOr<Tensors>)>;

  // `channel` outlives it; null: nothing is fetched, and inputs elsewhere are the worker's to refuse.
  RemoteInputs(transport::TensorChannel* channel, RemoteInputLimits limits)
      : channel_(channel), limits_(limits) {}

  // True when an input has to be brought here first.
  [[nodiscard]] bool Needed(const Tensors& inputs) const;
  // Brings them; `done` gets the inputs with references that this host's processes can map, valid until
  // Forget. Once, unless forgotten before; at once for what can never be. ResourceExhausted: more than the
  // limit, or no room in the arena. DeadlineExceeded: not within `expiry` or the longest transfer.
  // Unavailable: their owner is gone. `self` resumes on proto::Continue. The id is not known yet.
  void Bring(caf::local_actor* self, const node::RequestId& id, const Tensors& inputs, Time expiry,
             Done done);
  // The request has ended: its inputs go, and nothing is reported any more. False: nothing was brought for
  // it.
  bool Forget(const node::RequestId& id);
  // The requests of this router that have not got their inputs yet.
  [[nodiscard]] std::vector<node::RequestId> PendingOf(std::uint64_t router) const;
  [[nodiscard]] bool Pending(const node::RequestId& id) const;
  [[nodiscard]] std::size_t pending() const { return pending_; }
  [[nodiscard]] Bytes used() const { return used_; }
  void Resume(const proto::Continue& message) { continuations_.Resume(message); }
  // At the actor's end.
  void Clear();

 private:
  struct Entry {
    std::uint64_t serial = 0;  // tells this request from a later one with its id
    Tensors inputs;
    Bytes size;  // of the inputs that lie elsewhere
    Time expiry{};
    Done done;
    std::size_t open = 0;                     // transfers under way
    bool begun = false;                       // room was taken
    std::vector<transport::TensorData> here;  // what has arrived
  };
  void BeginWaiting();
  void Begin(const node::RequestId& id, Entry& entry);
  void Arrived(const node::RequestId& id, std::uint64_t serial, int index, Bytes size,
               absl::StatusOr<transport::TensorData> data);
  void End(const node::RequestId& id, Entry& entry, absl::StatusOr<Tensors> result);

  transport::TensorChannel* const channel_;
  const RemoteInputLimits limits_;
  caf::local_actor* self_ = nullptr;
  Continuations continuations_;
  std::map<node::RequestId, Entry> entries_;
  std::deque<node::RequestId> waiting_;  // for room
  Bytes used_;
  std::size_t pending_ = 0;  // entries whose `done` is still due
  std::uint64_t next_serial_ = 1;
};

}  // namespace troupe::actors
