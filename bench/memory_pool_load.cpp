// The runs' pool under a bursty load, in virtual time.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <optional>

#include "base/check.hpp"
#include "base/random.hpp"
#include "bench/memory_load.hpp"
#include "bench/paper_device.hpp"
#include "gpu/memory/device_memory.hpp"

namespace troupe::gpu::bench {
namespace {

// Adds the time of its own scope to a sum.
class Meter {
 public:
  template <class Call>
  auto operator()(Call call) {
    const auto begin = std::chrono::steady_clock::now();
    auto result = call();
    spent_ += std::chrono::steady_clock::now() - begin;
    return result;
  }
  [[nodiscard]] Duration spent() const { return spent_; }

 private:
  Duration spent_{};
};

class PoolSimulation {
 public:
  PoolSimulation(const std::vector<Network>& networks, const PoolLoad& load)
      : networks_(networks), load_(load), memory_(device_, Options(load)), random_(load.seed) {
    Duration sum{};
    for (const Network& network : networks) sum += network.by_step->run_time();  // by_launch has the same
    mean_run_ = sum / static_cast<std::int64_t>(networks.size());
    for (std::size_t f = 0; f < load.functions; ++f) {
      functions_.push_back({"function-" + std::to_string(f), &networks_[f % networks_.size()], {}, false});
      // All functions are deployed and warm: the static pool holds its whole need from here on.
      memory_.pool().Arrived(functions_.back().digest);
      memory_.pool().Planned(functions_.back().digest, Whole(*functions_.back().network));
    }
  }

  PoolFigures Run() {
    Time arrival = NextArrival(Time());
    while (now_ < Time() + load_.length) {
      Time next = std::min(arrival, next_look_);
      for (const Active& run : active_) next = std::min(next, run.step_end);
      Account(next);
      if (now_ >= next_look_) {
        memory_.pool().Follow(now_);
        next_look_ = now_ + memory_.pool().interval() / 2;
      }
      if (now_ >= arrival) {
        functions_[random_.Below(functions_.size())].waiting.push_back(now_);
        arrival = NextArrival(now_);
      }
      for (std::size_t i = active_.size(); i-- > 0;) {
        if (active_[i].step_end <= now_) Advance(i);
      }
      Start();
    }
    PoolFigures figures;
    figures.peak = memory_.pool().peak();
    figures.mean = Bytes(static_cast<std::uint64_t>(byte_seconds_ / ToSeconds(now_ - Time())));
    figures.allocation_share = ToSeconds(meter_.spent()) / std::max(1e-9, ToSeconds(alone_));
    return figures;
  }

 private:
  struct Function {
    std::string digest;
    const Network* network;
    std::deque<Time> waiting;
    bool running = false;
  };
  struct Active {
    std::size_t function;
    std::size_t step = 0;
    Time step_end;
    RunPool::RunId id = 0;
    std::vector<std::optional<DeviceRange>> weights;  // by part
    DeviceRange activations;
  };

  static MemoryOptions Options(const PoolLoad& load) {
    MemoryOptions options;
    options.policy = load.variant;
    return options;
  }

  Time NextArrival(Time after) {
    const double capacity = 1 / ToSeconds(mean_run_);
    const bool burst = (after - Time()) % std::chrono::seconds(20) < std::chrono::seconds(2);
    const double rate = capacity * (burst ? 2.0 : 0.1);
    return after + FromSeconds(-std::log(1 - random_.Uniform()) / rate);
  }

  void Account(Time next) {
    byte_seconds_ += static_cast<double>(memory_.pool().size().count()) * ToSeconds(next - now_);
    now_ = next;
  }

  DeviceRange Allocate(const Function& function, Bytes size) {
    const auto range = meter_([&] {
      return memory_.Allocate({MemoryUser::Kind::kRun, function.digest}, size);
    });
    TROUPE_CHECK(range.ok(), "the bench's quota is large enough for its load");
    return *range;
  }
  void Free(const DeviceRange& range) {
    meter_([&] { return memory_.Free(range), 0; });
  }

  void Start() {
    for (std::size_t f = 0; f < functions_.size() && active_.size() < load_.streams; ++f) {
      Function& function = functions_[(f + runs_) % functions_.size()];  // in turn
      if (function.running || function.waiting.empty()) continue;
      function.waiting.pop_front();
      function.running = true;
      Active run{(f + runs_) % functions_.size(), 0, {}, 0, {}, {}};
      run.weights.resize(function.network->weights.size());
      run.id = memory_.pool().Began(ProfileOf(*function.network), now_);
      if (AtOnce()) run.activations = Allocate(function, Whole(*function.network));
      active_.push_back(std::move(run));
      Enter(active_.back());
    }
  }

  [[nodiscard]] bool IsWorkers() const { return load_.mode == PoolMode::kWorker; }
  [[nodiscard]] bool AtOnce() const { return load_.variant == "static" || IsWorkers(); }
  [[nodiscard]] const std::shared_ptr<const MemoryProfile>& ProfileOf(const Network& network) const {
    return IsWorkers() ? network.by_launch : network.by_step;
  }
  [[nodiscard]] Bytes Whole(const Network& network) const {
    return IsWorkers() ? network.activations : network.whole;
  }

  // Allocates the memory that the step is the first to use.
  void Enter(Active& run) {
    const Function& function = functions_[run.function];
    const Network& network = *function.network;
    if (!AtOnce()) {
      Bytes weights;
      for (std::size_t i = 0; i < network.weights.size(); ++i) {
        const WeightPart& part = network.weights[i];
        if (part.first == run.step) run.weights[i] = Allocate(function, Bytes(part.length));
        if (part.first <= run.step && run.step <= part.last) weights += Bytes(part.length);
      }
      run.activations = Allocate(function, network.by_step->At(run.step) - weights);
    }
    if (IsWorkers() && load_.variant != "static") Trim(run, network);
    memory_.pool().Reached(run.id, run.step, now_);
    const auto steps = static_cast<std::int64_t>(network.by_step->steps());
    const auto sharers = static_cast<std::int64_t>(active_.size());
    run.step_end = now_ + network.by_step->run_time() / steps * sharers;
  }

  // Trims as a worker does, at the steps that the plan has marked.
  void Trim(Active& run, const Network& network) {
    for (const RunNeeds::Trim& trim : network.trims) {
      if (trim.step == run.step) meter_([&] { return memory_.Trim(run.activations, trim.left), 0; });
    }
  }

  // Frees the memory that the step was the last to use.
  void Leave(Active& run) {
    const Network& network = *functions_[run.function].network;
    if (AtOnce()) return;
    Free(run.activations);
    for (std::size_t i = 0; i < network.weights.size(); ++i) {
      if (network.weights[i].last == run.step) Free(*std::exchange(run.weights[i], std::nullopt));
    }
  }

  void Advance(std::size_t i) {
    Active& run = active_[i];
    Function& function = functions_[run.function];
    Leave(run);
    if (++run.step < function.network->by_step->steps()) {
      Enter(run);
      return;
    }
    if (AtOnce()) Free(run.activations);
    memory_.pool().Ended(run.id);
    alone_ += function.network->by_step->run_time();
    ++runs_;
    function.running = false;
    active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
  }

  const std::vector<Network>& networks_;
  const PoolLoad load_;
  PaperDevice device_{GiB(64)};
  DeviceMemory memory_;
  Random random_;
  Meter meter_;
  std::vector<Function> functions_;
  std::vector<Active> active_;
  Duration mean_run_{};
  Time now_{};
  Time next_look_{};
  double byte_seconds_ = 0;
  Duration alone_{};
  std::size_t runs_ = 0;
};

}  // namespace

PoolFigures MeasurePool(const std::vector<Network>& networks, const PoolLoad& load) {
  return PoolSimulation(networks, load).Run();
}

Network MakeNetwork(const DevicePlan& plan, Duration run_time) {
  constexpr Bytes kPart = KiB(128);
  Network network;
  network.by_step = std::make_shared<const MemoryProfile>(plan, run_time, MemoryProfile::Weights::kByLayer,
                                                          MemoryProfile::Activations::kByLife, kPart);
  network.by_launch = std::make_shared<const MemoryProfile>(plan, run_time, MemoryProfile::Weights::kResident,
                                                            MemoryProfile::Activations::kAhead, kPart);
  network.weights = PlanWeights(plan, kPart);
  network.weights_bytes = plan.weights_bytes();
  network.whole =
      MemoryProfile(plan, run_time, MemoryProfile::Weights::kWhole, MemoryProfile::Activations::kWhole, kPart)
          .peak();
  network.activations = network.by_launch->peak();
  network.trims = RunNeeds::TrimsOf(plan);
  return network;
}

}  // namespace troupe::gpu::bench
