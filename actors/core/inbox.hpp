// INBOX: how a thread outside actors has something done inside one: it leaves a closure, and a Job message
// makes the actor run it. The other way round is continuations.hpp. A closure that is never run (the actor
// has ended) is destroyed, at the latest when it is posted.
#pragma once

#include <caf/actor.hpp>
#include <caf/actor_cast.hpp>
#include <caf/send.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "proto/local.pb.h"

namespace troupe::actors {

template <class Actor>
class Inbox {
 public:
  using Closure = std::function<void(Actor&)>;

  // Any thread.
  template <class Handle>
  void Post(const Handle& actor, Closure closure) {
    proto::Job job;
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return;
      job.set_ticket(next_++);
      closures_[job.ticket()] = std::move(closure);
    }
    // Job is hidden from the interface that other actors see.
    caf::anon_send(caf::actor_cast<caf::actor>(actor), std::move(job));
  }
  // In the actor.
  void Run(const proto::Job& job, Actor& actor) {
    Closure closure;
    {
      const std::lock_guard lock(mutex_);
      auto node = closures_.extract(job.ticket());
      if (node.empty()) return;
      closure = std::move(node.mapped());
    }
    closure(actor);
  }
  // On the actor's end.
  void Close() {
    std::map<std::uint64_t, Closure> dropped;  // destroyed outside the lock
    const std::lock_guard lock(mutex_);
    closed_ = true;
    dropped.swap(closures_);
  }

 private:
  std::mutex mutex_;
  std::map<std::uint64_t, Closure> closures_;  // guarded by mutex_
  std::uint64_t next_ = 1;                     // guarded by mutex_
  bool closed_ = false;                        // guarded by mutex_
};

}  // namespace troupe::actors
