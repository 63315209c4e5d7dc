#include "sim/profiled_gpu.hpp"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "gpu/worker/launch_order.hpp"

namespace troupe::sim {

namespace {

using actors::FakeGpu;

class ProfiledGpu : public FakeGpu {
 public:
  ProfiledGpu(GpuMechanism mechanism, std::shared_ptr<const ModelCatalogue> models,
              std::shared_ptr<HostLink> link, std::shared_ptr<GpuUse> use, Timer timer)
      : mechanism_(std::move(mechanism)),
        models_(std::move(models)),
        link_(std::move(link)),
        use_(std::move(use)),
        timer_(std::move(timer)) {}

 protected:
  [[nodiscard]] const ModelTimes& TimesOf(const std::string& digest) const {
    const auto it = models_->find(digest);
    TROUPE_CHECK(it != models_->end(), "a simulated worker was given a model without a profile");
    return it->second;
  }
  [[nodiscard]] Duration RunOf(const std::string& digest) const {
    const Duration run = TimesOf(digest).run;
    return mechanism_.allocation.run +
           (mechanism_.speed == 1 ? run : FromSeconds(ToSeconds(run) / mechanism_.speed));
  }
  [[nodiscard]] BytesPerSecond RateOf(const Load& load) const {
    return load.peer ? mechanism_.peer_link(*load.peer) : mechanism_.link;
  }
  [[nodiscard]] Duration Alone(const Load& load) const {
    const Duration measured = load.peer ? Duration() : TimesOf(load.digest).load;
    return mechanism_.allocation.load +
           (measured > Duration() ? measured : TransferTime(load.bytes, RateOf(load)));
  }

  const GpuMechanism mechanism_;
  const std::shared_ptr<const ModelCatalogue> models_;
  const std::shared_ptr<HostLink> link_;
  const std::shared_ptr<GpuUse> use_;
  const Timer timer_;
};

class AtomicGpu final : public ProfiledGpu {
 public:
  using ProfiledGpu::ProfiledGpu;

  void Bring(const Load& load, Time now, Loaded done) override {
    if (mechanism_.on_bring) mechanism_.on_bring(load.digest, load.peer.has_value());
    const Time begin = std::max(now, free_);
    free_ = begin + Alone(load);
    timer_(free_, [this, begin, took = free_ - begin, done = std::move(done)] {
      use_->loading += took;
      done(begin);
    });
  }

  void Run(const std::string& digest, std::optional<Time>, Time now, Ran done) override {
    const Time begin = std::max(now, free_);
    free_ = begin + RunOf(digest);
    timer_(free_, [this, begin, took = free_ - begin, done = std::move(done)] {
      use_->computing += took;
      done(begin, Time{});
    });
  }

 private:
  Time free_{};
};

// Copies one after the other over the link that it shares; runs one after the other.
class OverlappingGpu final : public ProfiledGpu {
 public:
  using ProfiledGpu::ProfiledGpu;
  ~OverlappingGpu() override {
    if (transfer_ != 0) link_->Leave(transfer_);
  }

  void Bring(const Load& load, Time now, Loaded done) override {
    if (mechanism_.on_bring) mechanism_.on_bring(load.digest, load.peer.has_value());
    loads_.push_back({.load = load, .done = std::move(done)});
    NextLoad(now);
  }

  void Run(const std::string& digest, std::optional<Time> deadline, Time now, Ran done) override {
    runs_.push_back({.digest = digest,
                     .done = std::move(done),
                     .urgency = mechanism_.runs == Turns::kDeadline
                                    ? gpu::UrgencyOf(gpu::LinkSharing::kDeadline, now, deadline)
                                    : 0});
    NextRun(now);
  }

 private:
  struct Bringing {
    Load load;
    Loaded done;
    Time begin{};
    bool begun = false;
  };
  struct Running {
    std::string digest;
    Ran done;
    gpu::Urgency urgency = 0;  // the smallest goes first
    Time begin{};
    bool begun = false;
    std::optional<Duration> tail{};  // it began before its weights were there: after the last of them
  };

  [[nodiscard]] const Bringing* FindLoad(const std::string& digest) const {
    for (const auto& load : loads_)
      if (load.load.digest == digest) return &load;
    return nullptr;
  }

  void NextLoad(Time now) {
    if (loads_.empty() || loads_.front().begun) return;
    if (mechanism_.loads == Turns::kDeadline) {
      const auto deadline = [](const Bringing& load) { return load.load.deadline.value_or(Time::max()); };
      const auto next = std::ranges::min_element(loads_, {}, deadline);
      std::rotate(loads_.begin(), next, next + 1);
    }
    auto& front = loads_.front();
    front.begun = true;
    front.begin = now;
    const Duration alone = Alone(front.load);
    const bool measured = !front.load.peer && TimesOf(front.load.digest).load > Duration();
    if (measured || front.load.peer) {
      timer_(now + alone, [this, end = now + alone] { LoadEnded(end); });
    } else {
      transfer_ = link_->Begin(alone, front.load.deadline, now, timer_, [this](Time end) {
        transfer_ = 0;
        LoadEnded(end);
      });
    }
    NextRun(now);
  }

  void LoadEnded(Time now) {
    const auto ended = std::move(loads_.front());
    loads_.pop_front();
    use_->loading += now - ended.begin;
    if (!runs_.empty() && runs_.front().begun && runs_.front().tail &&
        runs_.front().digest == ended.load.digest)
      EndRunAt(std::max(now, runs_.front().begin + RunOf(ended.load.digest)) + *runs_.front().tail, now);
    ended.done(ended.begin);
    NextLoad(now);
    NextRun(now);
  }

  // Load and run of a model on an idle link.
  [[nodiscard]] Duration Together(const Load& load) const {
    const ModelTimes& times = TimesOf(load.digest);
    const Duration longer = std::max(RunOf(load.digest), Alone(load));
    const auto& [allocation, before_run] = mechanism_.allocation;
    return load.peer ? longer : std::max(times.swapped + allocation + before_run, longer);
  }

  // Of the runs that `can` begin the next one in turn; of equals the one that came first.
  template <class Can>
  std::deque<Running>::iterator FirstOf(Time now, Can can) {
    auto best = runs_.end();
    for (auto run = runs_.begin(); run != runs_.end(); ++run)
      if (can(FindLoad(run->digest)) &&
          (best == runs_.end() || gpu::TurnAt(run->urgency, now) < gpu::TurnAt(best->urgency, now)))
        best = run;
    return best;
  }

  [[nodiscard]] gpu::Launchable LaunchableOf(const Running& run) const {
    const Bringing* load = FindLoad(run.digest);
    return {.urgency = run.urgency,
            .takes = RunOf(run.digest),
            .weights = load == nullptr ? Time() : load->begin + Alone(load->load)};
  }

  // As a worker does it: what has all its weights goes before what waits for some, unless that makes late
  // what need not be.
  void NextRun(Time now) {
    if (runs_.empty() || runs_.front().begun) return;
    auto next = FirstOf(now, [](const Bringing* load) { return load == nullptr; });
    if (mechanism_.mode == LoadMode::kPipelined) {
      const auto coming = FirstOf(now, [](const Bringing* load) { return load != nullptr && load->begun; });
      if (next == runs_.end() ||
          (coming != runs_.end() && gpu::GoesBefore(LaunchableOf(*coming), LaunchableOf(*next), now)))
        next = coming;
    }
    if (next == runs_.end()) return;
    std::rotate(runs_.begin(), next, next + 1);
    auto& front = runs_.front();
    const Bringing* load = FindLoad(front.digest);
    front.begun = true;
    front.begin = now;
    if (load == nullptr) return EndRunAt(now + RunOf(front.digest), Time{});
    front.tail = Together(load->load) - std::max(RunOf(front.digest), Alone(load->load));
  }

  void EndRunAt(Time end, Time last_weights) {
    timer_(end, [this, end, last_weights] {
      const auto ended = std::move(runs_.front());
      runs_.pop_front();
      use_->computing += end - ended.begin;
      ended.done(ended.begin, last_weights);
      NextRun(end);
    });
  }

  std::deque<Bringing> loads_;
  std::deque<Running> runs_;
  HostLink::Ticket transfer_ = 0;
};

// Processes beside each other: what has started runs, one run after the other.
class RuntimesGpu final : public ProfiledGpu {
 public:
  using ProfiledGpu::ProfiledGpu;

  void Bring(const Load& load, Time now, Loaded done) override {
    if (mechanism_.on_bring) mechanism_.on_bring(load.digest, load.peer.has_value());
    const Time end = now + Alone(load);
    ready_[load.digest] = end;
    timer_(end, [this, begin = now, took = end - now, done = std::move(done)] {
      use_->loading += took;
      done(begin);
    });
  }

  void Run(const std::string& digest, std::optional<Time>, Time now, Ran done) override {
    const auto ready = ready_.find(digest);
    if (ready == ready_.end() || ready->second <= now) return Start(digest, now, std::move(done));
    timer_(ready->second,
           [this, digest, at = ready->second, done = std::move(done)] { Start(digest, at, done); });
  }

 private:
  void Start(const std::string& digest, Time now, Ran done) {
    const Time begin = std::max(now, free_);
    free_ = begin + RunOf(digest);
    timer_(free_, [this, begin, took = free_ - begin, done = std::move(done)] {
      use_->computing += took;
      done(begin, Time{});
    });
  }

  std::map<std::string, Time> ready_;
  Time free_{};
};

}  // namespace

absl::StatusOr<LoadMode> ParseLoadMode(const std::string& name) {
  if (name == "atomic") return LoadMode::kAtomic;
  if (name == "overlapped") return LoadMode::kOverlapped;
  if (name == "pipelined") return LoadMode::kPipelined;
  return absl::InvalidArgumentError(absl::StrCat(
      "'", name, "' is not a valid way of loading; choose one of: atomic, overlapped, pipelined"));
}

// Mean of `allocation_mean_us` of `make bench-memory`, where a call of the device's allocator takes 100 us.
// Of the policies that have the memory from the start a load takes 2 us and a run 1 us: nothing, beside what
// they are.
AllocationTimes AllocationTimesOf(std::string_view memory_policy) {
  using std::chrono::microseconds;
  if (memory_policy == "block-cache") return {.load = microseconds(590), .run = microseconds(100)};
  if (memory_policy == "device-malloc") return {.load = microseconds(495), .run = microseconds(330)};
  return {};
}

std::unique_ptr<FakeGpu> MakeProfiledGpu(GpuMechanism mechanism, std::shared_ptr<const ModelCatalogue> models,
                                         std::shared_ptr<HostLink> link, std::shared_ptr<GpuUse> use,
                                         FakeGpu::Timer timer) {
  if (mechanism.mode == LoadMode::kAtomic)
    return std::make_unique<AtomicGpu>(std::move(mechanism), std::move(models), std::move(link),
                                       std::move(use), std::move(timer));
  if (mechanism.mode == LoadMode::kRuntimes)
    return std::make_unique<RuntimesGpu>(std::move(mechanism), std::move(models), std::move(link),
                                         std::move(use), std::move(timer));
  return std::make_unique<OverlappingGpu>(std::move(mechanism), std::move(models), std::move(link),
                                          std::move(use), std::move(timer));
}

}  // namespace troupe::sim
