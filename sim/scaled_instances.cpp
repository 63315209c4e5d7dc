#include "sim/scaled_instances.hpp"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/random.hpp"
#include "base/status.hpp"
#include "sim/shared_gpu.hpp"

namespace troupe::sim {

namespace {

constexpr Duration kWindow = std::chrono::seconds(1);

struct ModelledInstance {
  cluster::Extent extent{};
  cluster::Extent from_next_window{};
  Time ready{};
  bool draining = false;
  std::optional<Time> ends{};  // of its run
  Time began{};                // of its run: what it has computed since is counted at each tick
  std::int64_t window = -1;    // of which `used` is
  Duration used{};
};

// What has happened since the latest tick.
struct SinceTick {
  std::uint64_t arrived = 0, served = 0;
  double computed = 0, booked = 0;  // GPU seconds
};

class ScaledWorld {
 public:
  explicit ScaledWorld(const ScaledSetup& setup) : setup_(setup), scaler_({}), random_(setup.seed) {}

  absl::StatusOr<ScaledOutcome> Go() {
    for (std::uint32_t gpu = 0; gpu < setup_.gpus; ++gpu)
      TROUPE_RETURN_IF_ERROR(scaler_.AddGpu({.name = absl::StrCat("gpu-", 100 + gpu),
                                             .node = absl::StrCat("node-", gpu),
                                             .kind = setup_.function.points.begin()->first,
                                             .memory = GiB(16)}));
    TROUPE_RETURN_IF_ERROR(scaler_.AddFunction(setup_.function));
    next_arrival_ = Time();
    DrawArrival();
    Time next_tick = Time() + setup_.tick;
    const Time end = Time() + setup_.length;
    while (now_ < end) {
      Begin();
      Time next = std::min({next_arrival_, next_tick, end});
      for (const auto& [id, instance] : instances_) next = std::min(next, NextOf(instance));
      Advance(next);
      End();
      if (now_ >= next_arrival_) Arrive();
      if (now_ >= next_tick) {
        Tick();
        next_tick += setup_.tick;
      }
    }
    for (const Time asked : waiting_) CountAnswer(asked, asked + setup_.function.deadline < now_);
    for (const Time asked : late_) CountAnswer(asked, true);
    return std::move(outcome_);
  }

 private:
  [[nodiscard]] static std::int64_t WindowAt(Time time) { return time.time_since_epoch() / kWindow; }
  [[nodiscard]] static Time NextWindow(Time time) { return Time() + (WindowAt(time) + 1) * kWindow; }
  [[nodiscard]] Duration RunOn(const ModelledInstance& instance) const {
    return setup_.cost.On(SharedGpuLadder().For(instance.extent.sms));
  }
  [[nodiscard]] static Duration LimitOf(const ModelledInstance& instance) {
    return kWindow / cluster::kWholeGpu * instance.extent.quota;
  }
  [[nodiscard]] bool HasTime(const ModelledInstance& instance) const {
    return instance.window != WindowAt(now_) || instance.used < LimitOf(instance);
  }
  [[nodiscard]] bool Counted(Time asked) const { return asked >= Time() + setup_.warm_up; }

  // The end of its run; or when it can take a request that waits.
  [[nodiscard]] Time NextOf(const ModelledInstance& instance) const {
    if (instance.ends) return *instance.ends;
    if (waiting_.empty() && late_.empty()) return Time::max();
    if (now_ < instance.ready) return instance.ready;
    return HasTime(instance) ? Time::max() : NextWindow(now_);
  }

  // A Poisson process whose rate changes: drawn at the highest rate, and thinned. A load may end before the time does.
  void DrawArrival() {
    do {
      next_arrival_ += FromSeconds(random_.Exponential(1 / setup_.most_per_second));
    } while (next_arrival_ < Time() + setup_.length &&
             random_.Uniform() * setup_.most_per_second > setup_.load(next_arrival_ - Time()));
  }

  void Arrive() {
    waiting_.push_back(next_arrival_);
    ++lately_.arrived;
    DrawArrival();
  }

  // Idle instances take what waits, the fastest first.
  void Begin() {
    while (!waiting_.empty() || !late_.empty()) {
      ModelledInstance* best = nullptr;
      for (auto& [id, instance] : instances_) {
        if (instance.ends || instance.draining || now_ < instance.ready || !HasTime(instance)) continue;
        if (best == nullptr || RunOn(instance) < RunOn(*best)) best = &instance;
      }
      if (best == nullptr) return;
      Run(*best, TakeNext(RunOn(*best)));
    }
  }

  Time TakeNext(Duration run) {
    while (!waiting_.empty() && now_ + run > waiting_.front() + setup_.function.deadline) {
      late_.push_back(waiting_.front());
      waiting_.pop_front();
    }
    auto& queue = waiting_.empty() ? late_ : waiting_;
    const Time asked = queue.front();
    queue.pop_front();
    return asked;
  }

  // It computes until its window's time is used up, and goes on in the windows that follow.
  void Run(ModelledInstance& instance, Time asked) {
    if (instance.window != WindowAt(now_)) {
      instance.window = WindowAt(now_);
      instance.used = {};
    }
    Duration left = RunOn(instance);
    const Duration limit = LimitOf(instance);
    Time at = now_;
    while (true) {
      const Time window_ends = NextWindow(at);
      const Duration part = std::min({left, limit - instance.used, window_ends - at});
      left -= part;
      at += part;
      instance.used += part;
      if (left <= Duration()) break;
      at = window_ends;
      instance.window = WindowAt(at);
      instance.used = {};
    }
    instance.ends = at;
    instance.began = now_;
    lately_.computed += ToSeconds(RunOn(instance)) * instance.extent.sms / cluster::kWholeGpu;
    ++lately_.served;
    CountAnswer(asked, at > asked + setup_.function.deadline);
  }

  void CountAnswer(Time asked, bool late) {
    if (!Counted(asked)) return;
    ++outcome_.asked;
    outcome_.late += late ? 1 : 0;
  }

  void Advance(Time to) {
    const double seconds = ToSeconds(to - now_);
    double area = 0;
    for (const auto& [name, gpu] : scaler_.table().gpus())
      area += cluster::kWholeGpu * cluster::kWholeGpu - gpu.FreeArea();
    const double gpus = area / (cluster::kWholeGpu * cluster::kWholeGpu);
    lately_.booked += gpus * seconds;
    if (Counted(now_)) outcome_.gpu_seconds += gpus * seconds;
    now_ = to;
  }

  void End() {
    for (auto& [id, instance] : instances_) {
      if (instance.ends && *instance.ends <= now_) instance.ends.reset();
      if (instance.extent != instance.from_next_window && now_ >= changes_at_)
        instance.extent = instance.from_next_window;
    }
    RemoveDrained();
  }

  void RemoveDrained() {
    std::vector<cluster::InstanceId> empty;
    for (const auto& [id, instance] : instances_)
      if (instance.draining && !instance.ends) empty.push_back(id);
    for (const cluster::InstanceId id : empty) Obey(scaler_.Drained(id, now_));
  }

  void Tick() {
    const double seconds = ToSeconds(setup_.tick);
    cluster::FunctionLoad load{
        .arrived_per_second = static_cast<double>(lately_.arrived) / seconds,
        .served_per_second = static_cast<double>(lately_.served) / seconds,
        .waiting = waiting_.size() + late_.size(),
        .busy = lately_.booked > 0 ? std::min(lately_.computed / lately_.booked, 1.0) : 0};
    lately_ = {};
    if (setup_.foreseen) {
      double most = 0;
      for (Duration ahead{}; ahead <= setup_.tick + setup_.ready; ahead += std::chrono::milliseconds(100))
        most = std::max(most, setup_.load(now_ - Time() + ahead));
      load.known_per_second = most;
    }
    Obey(scaler_.Tick({{setup_.function.name, load}}, now_));
    outcome_.most_instances = std::max(outcome_.most_instances, static_cast<double>(instances_.size()));
  }

  void Obey(const std::vector<cluster::ScaleDecision>& decisions) {
    for (const cluster::ScaleDecision& decision : decisions) {
      if (Counted(now_)) ++outcome_.decisions[decision.action];
      switch (decision.action) {
        case cluster::ScaleAction::kOwn:
        case cluster::ScaleAction::kAdd:
          instances_[decision.instance] = {.extent = decision.place.extent,
                                           .from_next_window = decision.place.extent,
                                           .ready = now_ + setup_.ready};
          break;
        case cluster::ScaleAction::kResize:
          instances_.at(decision.instance).from_next_window = decision.place.extent;
          changes_at_ = NextWindow(now_);
          break;
        case cluster::ScaleAction::kDrain:
          instances_.at(decision.instance).draining = true;
          break;
        case cluster::ScaleAction::kRemove:
          instances_.erase(decision.instance);
          break;
        // On another GPU it has to load its model again.
        case cluster::ScaleAction::kMove:
          instances_.at(decision.instance).ready = now_ + setup_.ready;
          break;
        case cluster::ScaleAction::kBindLate:
        case cluster::ScaleAction::kNoRoom:
          break;
      }
    }
  }

  const ScaledSetup& setup_;
  cluster::Autoscaler scaler_;
  Random random_;
  std::map<cluster::InstanceId, ModelledInstance> instances_;
  std::deque<Time> waiting_, late_;  // when they were asked; `late_` can no longer meet its deadline
  Time now_{}, next_arrival_{}, changes_at_{};
  SinceTick lately_;
  ScaledOutcome outcome_;
};

}  // namespace

absl::StatusOr<ScaledOutcome> ScaleInstances(const ScaledSetup& setup) {
  return ScaledWorld(setup).Go();
}

}  // namespace troupe::sim
