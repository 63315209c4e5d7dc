// CALL: a request to another actor that always ends.
//
// CAF 0.17 has two traps here: a request to a dead remote peer never fails by itself, and an infinite timeout
// hangs for ever. So every call names a timeout, and a PendingCalls (one per calling actor) fails what is in
// flight to a peer the moment that peer's DOWN arrives. The answer handler runs exactly once, in the calling
// actor, unless that ends before (Clear).
// The timeouts of an actor's calls are one table with one alarm, set for the earliest: a timeout of CAF's own
// would wake its clock's thread for every call, and stay in its schedule long after the answer.
#pragma once

#include <caf/actor_addr.hpp>
#include <caf/actor_cast.hpp>
#include <caf/actor_system.hpp>
#include <caf/error.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "actors/core/time.hpp"
#include "base/alarm.hpp"
#include "base/units.hpp"

namespace caf {
class scheduled_actor;
}

namespace troupe::actors {

// Calls of one actor that have not been answered. Used by that actor only, and a member of it.
class PendingCalls {
 public:
  using Fail = std::function<void(absl::Status)>;
  // Registers a call that fails with DEADLINE_EXCEEDED at `now + timeout`; the returned ticket is what Finish
  // takes.
  std::uint64_t Add(const caf::actor_addr& target, Time now, Duration timeout, Fail fail);
  // True when the call was still pending; a late answer after PeerDown finds false and is dropped.
  bool Finish(std::uint64_t ticket);
  // Fails every call in flight to `target` with UNAVAILABLE, oldest first.
  void PeerDown(const caf::actor_addr& target);
  // On the owner's end: what waits for an answer often holds the owner's own handle.
  void Clear();
  // Sees to it that `self`, the owner, looks again when the earliest timeout passes.
  void Arm(caf::scheduled_actor* self);
  [[nodiscard]] std::size_t size() const { return calls_.size(); }
  [[nodiscard]] std::size_t timers() const { return alarm_.timers(); }

 private:
  struct Entry {
    caf::actor_addr target;
    Time due{};
    Duration timeout{};
    Fail fail;
  };
  void Expire(Time now);

  std::map<std::uint64_t, Entry> calls_;
  std::set<std::pair<Time, std::uint64_t>> dues_;  // of calls_
  Alarm alarm_;
  std::uint64_t next_ = 1;
};

// What a CAF error means to the caller: UNAVAILABLE for a peer that is gone, DEADLINE_EXCEEDED for silence, UNIMPLEMENTED for
// a peer of another release that does not know the message.
[[nodiscard]] absl::Status ToStatus(const caf::error& error, Duration timeout);

// Asks `to` and calls `done(absl::StatusOr<Reply>)` exactly once, or never when `self` ends before the
// answer. `beside`: handles that travel with the request.
template <class Reply, class Self, class Handle, class Request, class Done, class... Beside>
void Call(Self* self, PendingCalls& calls, const Handle& to, Duration timeout, Request request, Done done,
          Beside... beside) {
  if (!to) {
    done(absl::StatusOr<Reply>(absl::UnavailableError("the peer is not connected")));
    return;
  }
  const auto ticket =
      calls.Add(caf::actor_cast<caf::actor_addr>(to), Now(self), timeout,
                [done](absl::Status status) mutable { done(absl::StatusOr<Reply>(std::move(status))); });
  calls.Arm(self);
  self->request(to, caf::infinite, std::move(request), std::move(beside)...)
      .then(
          [&calls, ticket, done](Reply& reply) mutable {
            if (calls.Finish(ticket)) done(absl::StatusOr<Reply>(std::move(reply)));
          },
          [&calls, ticket, timeout, done](caf::error& error) mutable {
            if (calls.Finish(ticket)) done(absl::StatusOr<Reply>(ToStatus(error, timeout)));
          });
}

}  // namespace troupe::actors
