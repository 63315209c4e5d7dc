#include "gpu/worker/launch_gate.hpp"

#include <algorithm>
#include <utility>

#include "proto/gpu_instances.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu {

using transport::SteadyNow;

LaunchGate::LaunchGate(const SharingOptions& options, ShareLadder ladder, std::shared_ptr<GatePage> page,
                       TaskQueue& queue, std::function<void()> changed)
    : options_(options),
      queue_(queue),
      changed_(std::move(changed)),
      page_(std::move(page)),
      tokens_(options, std::move(ladder)) {}

void LaunchGate::Join(const Run& run) {
  const std::lock_guard lock(mutex_);
  tokens_.Join(run.request.order.function(), run.request.order.sharing(), SteadyNow());
}

void LaunchGate::Leave(const Run& run) {
  const std::lock_guard lock(mutex_);
  tokens_.Leave(run.request.order.function(), SteadyNow());
}

bool LaunchGate::MayBegin(const Run& run, Time now) const {
  const std::lock_guard lock(mutex_);
  return tokens_.MayBegin(run.request.order.function(), now);
}

bool LaunchGate::HasTime(const Run& run, Time now) const {
  const std::lock_guard lock(mutex_);
  return tokens_.HasTime(run.request.order.function(), now);
}

TokenScheduler::Rank LaunchGate::RankOf(const Run& run, Time now) const {
  const std::lock_guard lock(mutex_);
  return tokens_.RankOf(run.request.order.function(), now);
}

bool LaunchGate::RanksEqual() const {
  const std::lock_guard lock(mutex_);
  return tokens_.RanksEqual();
}

// What other workers have is read before, and looked at again after it was taken: it may have changed. Nothing tells
// this worker when they give back what was in its way, and they may have done so by now: so it looks again
// whenever anything of theirs was there, not only when something still is.
template <typename Take, typename Undo>
bool LaunchGate::TakeRoom(const Take& take, const Undo& undo) {
  if (page_ == nullptr) return take();
  bool barred = false;
  for (bool again = true; again; again = page_->ClearDead()) {
    const SharesTaken others = page_->Others();
    barred = others.any();
    tokens_.SetOthers(others);
    time_.SetOthers(others.without_share, SteadyNow());
    if (!take()) continue;
    if (page_->Set(tokens_.taken(), options_.concurrency)) return true;
    undo();
    barred = true;
  }
  others_bar_ |= barred;
  return false;
}

void LaunchGate::Freed() {
  if (page_ != nullptr) page_->Reduce(tokens_.taken());
}

void LaunchGate::Computes(Turns& turns) {
  if (turns.share.sms == 0) time_.Begin(turns.time, SteadyNow());
}

void LaunchGate::Stops(Turns& turns) {
  time_.End(turns.time, SteadyNow());
}

bool LaunchGate::Begin(Run& run) {
  const std::string& function = run.request.order.function();
  const std::lock_guard lock(mutex_);
  std::optional<SmShare> share;
  const auto take = [&] {
    share = tokens_.Begin(function, run.request.order.sharing().sm_partition());
    return share.has_value();
  };
  if (!TakeRoom(take, [&] { tokens_.End(function, share); })) return false;
  run.arguments.share = *share;
  run.turns = std::make_shared<Turns>(Turns{.function = function, .share = *share});
  Computes(*run.turns);
  if (!tokens_.Metered(function)) return true;
  run.arguments.group = options_.window / kGroupsOfWindow;
  run.arguments.turn = [this, turns = run.turns](Duration used) { return Ask(turns, used); };
  return true;
}

EventPtr LaunchGate::Ask(const std::shared_ptr<Turns>& turns, Duration used) {
  const auto next = std::make_shared<VirtualEvent>();
  {
    const std::lock_guard lock(mutex_);
    turns->charged += used;
    if (tokens_.Charge(turns->function, used, SteadyNow())) return nullptr;
    if (closed_) {
      next->Complete(absl::CancelledError("the worker ends"));
      return next;
    }
    turns->next = next;
    tokens_.Pause(turns->share);
    Stops(*turns);
    Freed();
    paused_.push_back(turns);
  }
  queue_.Post(changed_);
  return next;
}

bool LaunchGate::Resume(Time now) {
  std::vector<std::shared_ptr<VirtualEvent>> begun;
  bool room = true;
  {
    const std::lock_guard lock(mutex_);
    if (paused_.empty()) return true;
    std::ranges::stable_sort(paused_, {}, [&](const std::shared_ptr<Turns>& turns) {
      return tokens_.RankOf(turns->function, now);
    });
    std::vector<std::shared_ptr<Turns>> still;
    for (auto& turns : paused_) {
      const bool has_time = room && tokens_.HasTime(turns->function, now);
      const bool goes_on = has_time && TakeRoom([&] { return tokens_.Resume(turns->share); },
                                                [&] { tokens_.Pause(turns->share); });
      room = room && (goes_on || !has_time);
      if (goes_on) {
        Computes(*turns);
        begun.push_back(turns->next);
      } else {
        still.push_back(std::move(turns));
      }
    }
    paused_ = std::move(still);
  }
  for (const auto& turn : begun) turn->Complete(absl::OkStatus());
  return room;
}

Duration LaunchGate::Ended(Run& run, Duration computed) {
  const std::lock_guard lock(mutex_);
  Turns& turns = *run.turns;
  Stops(turns);
  const Duration had = turns.time.Of(computed);
  // A launch that failed while it paused has no SMs.
  const bool paused = std::erase(paused_, run.turns) > 0;
  tokens_.Charge(turns.function, std::max(had - turns.charged, Duration(0)), SteadyNow());
  tokens_.End(turns.function, paused ? std::nullopt : std::optional(turns.share));
  Freed();
  run.turns = nullptr;
  return had;
}

Duration LaunchGate::PauseAfter(const Run& run, Time now) const {
  const std::lock_guard lock(mutex_);
  return tokens_.HasTime(run.request.order.function(), now) ? Duration(0) : tokens_.NextWindow(now) - now;
}

std::uint32_t LaunchGate::PercentOf(const Run& run, std::size_t streams) const {
  switch (policy().space) {
    case SharingPolicy::Space::kShares:
      return proto::SmPercentOf(run.request.order.sharing());
    case SharingPolicy::Space::kOne:
      return 100;
    case SharingPolicy::Space::kEverywhere:
      return std::max<std::uint32_t>(100 * concurrency() / static_cast<std::uint32_t>(streams), 1);
  }
  return 100;
}

void LaunchGate::Settled(bool some_wait, Time now) {
  const std::lock_guard lock(mutex_);
  next_turn_ = some_wait || !paused_.empty() ? tokens_.NextWindow(now) : Time::max();
  if (std::exchange(others_bar_, false)) next_turn_ = now + kLook;
}

void LaunchGate::Close() {
  std::vector<std::shared_ptr<Turns>> paused;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    paused = paused_;
  }
  for (const auto& turns : paused) turns->next->Complete(absl::CancelledError("the worker ends"));
}

}  // namespace troupe::gpu
