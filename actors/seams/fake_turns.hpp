// FAKE TURNS: quotas of time at a fake worker, by the token scheduler of the real one: runs of functions with a
// quota begin when their window has time. The SMs are the fake GPU's own matter.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/units.hpp"
#include "gpu/sharing/token_scheduler.hpp"
#include "proto/gpu_instances.hpp"
#include "proto/worker.pb.h"

namespace troupe::actors {

// What the fake workers of a cluster saw of functions with quotas; shared by them.
struct FakeQuotas {
  struct Seen {
    std::uint64_t life = 0;  // of a worker
    std::string function{};
    std::uint32_t limit = 0;  // percent of a window, of all instances; 0: none
    Time begin{}, end{};
  };
  std::vector<Seen> seen{};
  std::uint64_t lives = 0;
  // A mistake on purpose: no run is charged.
  bool never_charges = false;
};

// Of one life of a worker.
class FakeTurns {
 public:
  static constexpr Duration kWindow = std::chrono::seconds(1);
  struct Calls {
    std::function<void(Time, std::function<void()>)> in_time;
    std::function<void(const proto::WorkerOrder&)> compute;  // it is the run's turn
  };
  FakeTurns(std::shared_ptr<FakeQuotas> quotas, Calls calls)
      : quotas_(std::move(quotas)), calls_(std::move(calls)), life_(++quotas_->lives) {}

  // A run that waits for nothing computes at once.
  void Ask(const proto::WorkerOrder& order, Time now) {
    if (!proto::HasQuota(order.run().sharing())) return calls_.compute(order);
    tokens_.Join(order.run().function(), order.run().sharing(), now);
    held_.push_back(order);
    ComputeSome(now);
  }
  // How long the run's function has to pause now; zero: it has time.
  Duration Ended(const proto::WorkerOrder& order, Time begin, Time now) {
    const auto& sharing = order.run().sharing();
    if (!proto::HasQuota(sharing)) return {};
    const std::string& function = order.run().function();
    quotas_->seen.push_back(
        {life_, function, sharing.quota_limit() * proto::InstancesOf(sharing, 1), begin, now});
    if (!quotas_->never_charges) tokens_.Charge(function, now - begin, now);
    tokens_.End(function, begun_.extract(order.sequence()).mapped());
    const Duration pause = tokens_.HasTime(function, now) ? Duration(0) : tokens_.NextWindow(now) - now;
    tokens_.Leave(function, now);
    calls_.in_time(now, [this, now] { ComputeSome(now); });  // when the run was answered
    return pause;
  }

 private:
  void ComputeSome(Time now) {
    for (auto order = held_.begin(); order != held_.end();) {
      const auto here = order++;
      const std::string& function = here->run().function();
      if (!tokens_.MayBegin(function, now)) continue;
      const auto share = tokens_.Begin(function, 0);
      if (!share) continue;
      const proto::WorkerOrder begun = std::move(*here);
      begun_[begun.sequence()] = *share;
      held_.erase(here);
      calls_.compute(begun);
    }
    if (held_.empty() || std::exchange(armed_, true)) return;
    const Time next = tokens_.NextWindow(now);
    calls_.in_time(next, [this, next] {
      armed_ = false;
      ComputeSome(next);
    });
  }

  const std::shared_ptr<FakeQuotas> quotas_;
  const Calls calls_;
  const std::uint64_t life_;
  gpu::TokenScheduler tokens_{{.concurrency = 64, .window = kWindow}, ShareLadder()};
  std::list<proto::WorkerOrder> held_;
  std::map<std::uint64_t, SmShare> begun_;  // by the order's sequence
  bool armed_ = false;
};

}  // namespace troupe::actors
