#include "sim/shared_gpu.hpp"

#include <algorithm>
#include <deque>
#include <list>
#include <optional>
#include <utility>

#include "base/random.hpp"
#include "base/status.hpp"
#include "gpu/sharing/token_scheduler.hpp"
#include "proto/gpu_instances.hpp"

namespace troupe::sim {

namespace {

constexpr Duration kWindow = std::chrono::seconds(1);
constexpr Duration kGroup = kWindow / 100;  // as the worker's launch gate asks
constexpr std::size_t kStreams = 16;        // one for each unit of the SMs

struct Run {
  std::size_t function = 0;
  Time asked{};
  std::uint32_t passed = 0;
  std::optional<SmShare> share{};  // from its begin on; it keeps its place while it pauses
  bool metered = false;            // it asks after each group
  Duration left{};                 // on its part of the SMs, by itself
  Duration of_group{};             // computed, and not charged yet
};

class SharedGpu {
 public:
  SharedGpu(const SharedGpuSetup& setup, const gpu::SharingPolicy& policy)
      : setup_(setup),
        policy_(policy),
        tokens_({.name = setup.policy, .policy = policy, .concurrency = 1, .window = kWindow},
                SharedGpuLadder()),
        sources_(setup.functions.size()) {
    Random random(setup.seed);
    outcome_.functions.resize(setup.functions.size());
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      sources_[i].random = random.Fork();
      outcome_.functions[i].in_windows.resize(static_cast<std::size_t>(setup.length / kWindow) + 1);
      for (std::uint32_t client = 0; client < setup.functions[i].clients; ++client) AskFor(i);
      if (setup.functions[i].clients == 0) sources_[i].next = NextArrival(i);
    }
  }

  SharedGpuOutcome Go() {
    const Time end = Time() + setup_.length;
    while (now_ < end) {
      Arrive();
      Admit();
      LaunchSome();
      Advance(std::min(NextEvent(), end));
      EndGroups();
    }
    CountUnserved();
    outcome_.computing = ToSeconds(computing_) / ToSeconds(setup_.length);
    outcome_.sms = used_ / ToSeconds(setup_.length);
    return std::move(outcome_);
  }

 private:
  // Where a function's requests come from, and where they wait until the node gives them to the GPU.
  struct Source {
    Random random{0};
    Time next = Time::max();
    std::deque<Time> waiting{};
    std::uint32_t on_gpu = 0;
  };

  [[nodiscard]] const SharedFunction& FunctionOf(const Run& run) const {
    return setup_.functions[run.function];
  }

  Time NextArrival(std::size_t function) {
    const double rate = setup_.functions[function].rate;
    return rate > 0 ? now_ + FromSeconds(sources_[function].random.Exponential(1 / rate)) : Time::max();
  }

  void AskFor(std::size_t function) {
    sources_[function].waiting.push_back(now_);
    ++outcome_.functions[function].asked;
  }

  void Arrive() {
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      while (sources_[i].next <= now_) {
        AskFor(i);
        sources_[i].next = NextArrival(i);
      }
    }
  }

  // The node gives a GPU no more runs of a function than it may compute there, and one more.
  void Admit() {
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      Source& source = sources_[i];
      const SharedFunction& function = setup_.functions[i];
      const std::uint32_t most = proto::InstancesOf(function.sharing, 1) + 1;
      while (!source.waiting.empty() && source.on_gpu < most) {
        tokens_.Join(function.name, function.sharing, now_);
        ready_.push_back({.function = i, .asked = source.waiting.front()});
        source.waiting.pop_front();
        ++source.on_gpu;
      }
    }
  }

  // As the worker's runner does it: launches that have paused go on before others begin; then, of the runs that
  // may begin, the first of those whose functions lack most.
  void LaunchSome() {
    std::vector<Run*> passed;
    while (Resume() && computing_runs_.size() < kStreams) {
      const auto next = NextToLaunch(passed);
      if (next == ready_.end()) return;
      const SharedFunction& function = FunctionOf(*next);
      next->share = tokens_.Begin(function.name, function.sharing.sm_partition());
      if (!next->share) {
        if (policy_.behind == gpu::SharingPolicy::Behind::kWait || next->passed >= gpu::kMostPasses) return;
        passed.push_back(&*next);
        continue;
      }
      for (Run* run : passed) ++run->passed;
      next->metered = tokens_.Metered(function.name);
      next->left = function.cost.On(*next->share);
      computing_runs_.splice(computing_runs_.end(), ready_, next);
    }
  }

  std::list<Run>::iterator NextToLaunch(const std::vector<Run*>& passed) {
    auto best = ready_.end();
    for (auto run = ready_.begin(); run != ready_.end(); ++run) {
      const std::string& name = FunctionOf(*run).name;
      if (std::ranges::find(passed, &*run) != passed.end() || !tokens_.MayBegin(name, now_)) continue;
      if (best == ready_.end() || tokens_.RankOf(name, now_) < tokens_.RankOf(FunctionOf(*best).name, now_))
        best = run;
    }
    return best;
  }

  // False while a paused run that has time finds no room: no run may begin before it.
  bool Resume() {
    paused_.sort([&](const Run& a, const Run& b) {
      return tokens_.RankOf(FunctionOf(a).name, now_) < tokens_.RankOf(FunctionOf(b).name, now_);
    });
    for (auto run = paused_.begin(); run != paused_.end();) {
      const auto here = run++;
      if (!tokens_.HasTime(FunctionOf(*here).name, now_)) continue;
      if (!tokens_.Resume(*here->share)) return false;
      computing_runs_.splice(computing_runs_.end(), paused_, here);
    }
    return true;
  }

  // Runs on all SMs take turns there, so that each of several takes as many times as long.
  [[nodiscard]] Duration::rep SlownessOf(const Run& run) const {
    if (!run.share->everywhere()) return 1;
    return std::ranges::count_if(computing_runs_, [](const Run& other) { return other.share->everywhere(); });
  }

  [[nodiscard]] static Duration UntilItAsks(const Run& run) {
    return run.metered ? std::min(run.left, kGroup - run.of_group) : run.left;
  }

  [[nodiscard]] Time NextEvent() const {
    Time next = tokens_.NextWindow(now_);
    for (const Source& source : sources_) next = std::min(next, source.next);
    for (const Run& run : computing_runs_) next = std::min(next, now_ + UntilItAsks(run) * SlownessOf(run));
    return next;
  }

  // No window begins in between.
  void Advance(Time to) {
    const Duration passed = to - now_;
    const auto window = static_cast<std::size_t>(now_.time_since_epoch() / kWindow);
    if (!computing_runs_.empty()) computing_ += passed;
    for (Run& run : computing_runs_) {
      const Duration::rep slowness = SlownessOf(run);
      const Duration computed = passed / slowness;
      run.left -= computed;
      run.of_group += computed;
      FunctionOutcome& function = outcome_.functions[run.function];
      function.computed += computed;
      function.in_windows[window] += computed;
      used_ += ToSeconds(computed) * FunctionOf(run).cost.UsedOf(run.share->part());
    }
    now_ = to;
  }

  void EndGroups() {
    for (auto run = computing_runs_.begin(); run != computing_runs_.end();) {
      const auto here = run++;
      if (UntilItAsks(*here) > Duration()) continue;
      const std::string& name = FunctionOf(*here).name;
      const bool goes_on = tokens_.Charge(name, std::exchange(here->of_group, Duration()), now_);
      if (here->left <= Duration()) {
        End(here);
      } else if (!goes_on) {
        tokens_.Pause(*here->share);
        paused_.splice(paused_.end(), computing_runs_, here);
      }
    }
  }

  void End(std::list<Run>::iterator run) {
    const SharedFunction& function = FunctionOf(*run);
    tokens_.End(function.name, run->share);
    tokens_.Leave(function.name, now_);
    --sources_[run->function].on_gpu;
    ++outcome_.functions[run->function].served;
    outcome_.functions[run->function].latencies.push_back(now_ - run->asked);
    if (function.clients > 0) AskFor(run->function);
    computing_runs_.erase(run);
  }

  void CountUnserved() {
    const auto count = [&](std::size_t function, Time asked) {
      if (now_ - asked >= kWindow) outcome_.functions[function].latencies.push_back(now_ - asked);
    };
    for (const auto* runs : {&ready_, &computing_runs_, &paused_})
      for (const Run& run : *runs) count(run.function, run.asked);
    for (std::size_t i = 0; i < sources_.size(); ++i)
      for (const Time asked : sources_[i].waiting) count(i, asked);
  }

  const SharedGpuSetup& setup_;
  const gpu::SharingPolicy policy_;
  gpu::TokenScheduler tokens_;
  std::vector<Source> sources_;  // by function
  std::list<Run> ready_;         // in the order in which they came to the GPU
  std::list<Run> computing_runs_;
  std::list<Run> paused_;
  Time now_{};
  Duration computing_{};
  double used_ = 0;  // seconds of all SMs
  SharedGpuOutcome outcome_;
};

}  // namespace

ShareLadder SharedGpuLadder() {
  return {132, 8, 16};
}

absl::StatusOr<SharedGpuOutcome> ShareGpu(const SharedGpuSetup& setup) {
  TROUPE_ASSIGN_OR_RETURN(const auto policy, gpu::FindSharingPolicy(setup.policy));
  return SharedGpu(setup, policy).Go();
}

}  // namespace troupe::sim
