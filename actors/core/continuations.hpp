// CONTINUATIONS: how an actor hears back from code outside actors (the commit thread, a worker thread, a
// reader).
//
// An actor never blocks. It hands out a callback made here; a call of it, on any thread, posts a Continue
// message, and the continuation then runs inside the actor. A callback that is destroyed without being called
// fails the continuation, so nothing waits for ever. When the actor has ended, a late callback does nothing.
#pragma once

#include <caf/actor_addr.hpp>
#include <caf/actor_cast.hpp>
#include <caf/send.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "absl/status/statusor.h"
#include "proto/local.pb.h"

namespace troupe::actors {

class Continuations {
 public:
  template <class T>
  using Callback = std::function<void(absl::StatusOr<T>)>;

  // Of several in one actor each begins with other tickets, and hears every Continue.
  explicit Continuations(std::uint64_t first_ticket = 1) : next_(first_ticket) {}

  // `self` reacts to proto::Continue by calling Resume(message).
  template <class T, class Self>
  [[nodiscard]] Callback<T> Make(Self* self, std::function<void(absl::StatusOr<T>)> then) {
    const auto ticket = next_++;
    auto slot = std::make_shared<Slot<T>>(caf::actor_cast<caf::strong_actor_ptr>(self), ticket);
    waiting_.emplace(ticket, [slot, then = std::move(then)] { then(slot->Take()); });
    return [holder = std::make_shared<Guard<T>>(slot)](absl::StatusOr<T> value) {
      holder->slot->Set(std::move(value));
    };
  }

  // As Make, for work that has no result but its status.
  template <class Self>
  [[nodiscard]] std::function<void(absl::Status)> MakeStatus(Self* self,
                                                             std::function<void(const absl::Status&)> then) {
    auto callback =
        Make<bool>(self, [then = std::move(then)](const absl::StatusOr<bool>& done) { then(done.status()); });
    return [callback](absl::Status status) {
      callback(status.ok() ? absl::StatusOr<bool>(true) : absl::StatusOr<bool>(std::move(status)));
    };
  }

  void Resume(const proto::Continue& message) {
    const auto it = waiting_.find(message.ticket());
    if (it == waiting_.end()) return;
    auto run = std::move(it->second);
    waiting_.erase(it);
    run();
  }
  // On the actor's end: closures often hold its own handle.
  void Clear() { waiting_.clear(); }

 private:
  template <class T>
  class Slot {
   public:
    Slot(caf::strong_actor_ptr owner, std::uint64_t ticket)
        : owner_(caf::actor_cast<caf::actor_addr>(owner)), ticket_(ticket) {}
    void Set(absl::StatusOr<T> value) {
      {
        const std::lock_guard lock(mutex_);
        if (value_) return;
        value_.emplace(std::move(value));
      }
      proto::Continue message;
      message.set_ticket(ticket_);
      if (auto owner = caf::actor_cast<caf::actor>(owner_)) caf::anon_send(owner, std::move(message));
    }
    absl::StatusOr<T> Take() {
      const std::lock_guard lock(mutex_);
      return std::move(*value_);
    }

   private:
    std::mutex mutex_;
    caf::actor_addr owner_;
    std::uint64_t ticket_;
    std::optional<absl::StatusOr<T>> value_;
  };
  template <class T>
  struct Guard {
    explicit Guard(std::shared_ptr<Slot<T>> s) : slot(std::move(s)) {}
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    ~Guard() { slot->Set(absl::CancelledError("the answer was dropped")); }
    std::shared_ptr<Slot<T>> slot;
  };

  std::unordered_map<std::uint64_t, std::function<void()>> waiting_;
  std::uint64_t next_;
};

}  // namespace troupe::actors
