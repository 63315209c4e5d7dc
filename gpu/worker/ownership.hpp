// OWNERSHIP: which daemon has a worker, whom the worker serves, and how long it waits without a daemon. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/status.hpp"
#include "base/units.hpp"
#include "gpu/worker/adoption.hpp"
#include "proto/worker.pb.h"

namespace troupe::gpu {

class Ownership {
 public:
  // `lease`: how long the worker waits for a daemon; for the first it waits kFirstAdoption at least, since the
  // daemon that started this worker is about to come.
  explicit Ownership(Duration lease) : lease_(lease) {}

  // Whether a daemon may have the worker. `used`: the worker has models or plans.
  [[nodiscard]] absl::Status Admit(const proto::AdoptHello& hello, bool used) const {
    TROUPE_RETURN_IF_ERROR(gate_.Admit(hello.daemon_epoch(), serves_.Assigns(hello.isolation_key())));
    return serves_.Admit(hello.isolation_key(), used);
  }
  // The hello names a key for the first time.
  [[nodiscard]] bool Assigns(const proto::AdoptHello& hello) const {
    return serves_.Assigns(hello.isolation_key());
  }
  // A daemon that was admitted begins a session; the number of it.
  std::uint64_t Begin(const proto::AdoptHello& hello) {
    serves_.Serve(hello.isolation_key());
    return ++sessions_;
  }
  // The session stands.
  void Adopted(const proto::AdoptHello& hello) { gate_.Adopted(hello.daemon_epoch()); }
  void Wait(Time since) { waiting_since_ = since; }
  void Lost(Time now) {
    gate_.Lost();
    Wait(now);
  }

  [[nodiscard]] Duration lease() const { return sessions_ == 0 ? std::max(lease_, kFirstAdoption) : lease_; }
  // While no daemon has the worker.
  [[nodiscard]] bool LeaseIsOver(Time now) const { return now - waiting_since_ >= lease(); }
  [[nodiscard]] const std::string& key() const { return serves_.key(); }

 private:
  static constexpr Duration kFirstAdoption = std::chrono::seconds(10);
  const Duration lease_;
  AdoptionGate gate_;
  ServedKey serves_;
  std::uint64_t sessions_ = 0;
  Time waiting_since_;
};

}  // namespace troupe::gpu
