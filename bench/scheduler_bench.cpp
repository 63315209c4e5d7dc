// What a decision of the node's swap scheduler costs, in a cluster of many GPUs: the production scheduler
// with its policies, fed with outcomes by a loop that stands for the workers. bench/scheduler.py runs it.
//   scheduler_bench GPUS FUNCTIONS PRESET [DECISIONS]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <queue>
#include <string>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/random.hpp"
#include "node/scheduling/swap_scheduler.hpp"

namespace troupe::node::bench {
namespace {

using std::chrono::milliseconds;
using WallClock = std::chrono::steady_clock;

// A GPU holds some ten models, so that it keeps the popular ones and swaps the others; there are three
// requests for each GPU, so that there always is a queue.
constexpr Bytes kMemory = GiB(8), kActivation = MiB(64);
constexpr std::uint32_t kRequestsPerGpu = 3;
constexpr double kSkew = 0.9;

struct Function {
  FunctionNumber name;
  ModelNumber model;
  Bytes weights;
  Duration run;
};

// An answer that a worker will give.
struct Outcome {
  Time at;
  std::uint64_t number;  // the number of the outcome, so that equal times keep their order
  Dispatch dispatch;
  Duration run;
  Duration load;
  bool operator>(const Outcome& other) const {
    return std::tie(at, number) > std::tie(other.at, other.number);
  }
};

struct Figures {
  double decide_us = 0;   // in Decide, per dispatched request
  double request_us = 0;  // in all calls of the scheduler, per request
  double hits = 0;        // share of the requests whose model was on their GPU
};

class Load {
 public:
  Load(std::uint32_t gpus, std::size_t functions, const PolicyNames& names)
      : scheduler_({.max_waiting = std::size_t{gpus} * kRequestsPerGpu + 1}, Policies(names)),
        gpu_free_(gpus) {
    for (std::uint32_t gpu = 0; gpu < gpus; ++gpu) {
      scheduler_.AddGpu(gpu, kMemory);
      scheduler_.Apply(WorkerReady{.gpu = gpu, .memory = kMemory, .free = kMemory}, now_);
    }
    AddFunctions(functions);
    for (std::uint32_t i = 0; i < gpus * kRequestsPerGpu; ++i) Submit();
    Decide();
  }

  Figures Measure(std::uint64_t decisions) {
    Run(decisions);  // warms caches and GPUs
    decide_ = all_ = {};
    const SchedulerCounts before = scheduler_.counts();
    const std::uint64_t done = Run(decisions);
    const SchedulerCounts& after = scheduler_.counts();
    scheduler_.Check();
    const auto micros = [&](WallClock::duration time) {
      return std::chrono::duration<double, std::micro>(time).count() / static_cast<double>(done);
    };
    return {micros(decide_), micros(all_),
            static_cast<double>(after.hits - before.hits) / static_cast<double>(done)};
  }

 private:
  static SchedulerPolicies Policies(const PolicyNames& names) {
    auto policies = FindSchedulerPolicies(names);
    TROUPE_CHECK(policies.ok(), policies.status().ToString().c_str());
    return *policies;
  }

  void AddFunctions(std::size_t count) {
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const auto digest = absl::StrCat("sha256:", absl::Hex(random_(), absl::kZeroPad16));
      Function function{.name = names_.Function(digest),
                        .model = names_.Model(digest),
                        .weights = MiB(100 + random_.Below(900)),
                        .run = milliseconds(20 + random_.Below(80))};
      scheduler_.DescribeModel(function.model, function.weights, kActivation);
      by_model_.emplace(function.model, functions_.size());
      functions_.push_back(std::move(function));
      popularity_.push_back(sum += std::pow(static_cast<double>(i + 1), -kSkew));
    }
  }

  template <class Call>
  auto Timed(WallClock::duration& total, Call call) {
    const auto begin = WallClock::now();
    auto result = call();
    const auto took = WallClock::now() - begin;
    total += took;
    return result;
  }

  void Submit() {
    const double draw = random_.Uniform() * popularity_.back();
    const auto index = std::lower_bound(popularity_.begin(), popularity_.end(), draw) - popularity_.begin();
    const Function& function = functions_[static_cast<std::size_t>(index)];
    const NodeRequest request{.id = {1, next_++},
                              .function = function.name,
                              .model = function.model,
                              .deadline = now_ + milliseconds(500),
                              .expiry = now_ + std::chrono::hours(1)};
    const Submitted submitted = Timed(all_, [&] { return scheduler_.Submit(request, now_); });
    TROUPE_CHECK(submitted.accepted, "a request was refused");
  }

  void Decide() {
    const auto begin = WallClock::now();
    Decision decision = scheduler_.Decide(now_);
    const auto took = WallClock::now() - begin;
    decide_ += took;
    all_ += took;
    for (Dispatch& dispatch : decision.dispatches) Carry(std::move(dispatch));
    for (Dispatch& prefetch : decision.prefetches) Carry(std::move(prefetch));
  }

  // A load and its run stand behind the GPU's earlier work; a prefetch goes on beneath a run.
  void Carry(Dispatch dispatch) {
    const Function& function = functions_[by_model_.at(dispatch.model)];
    const Duration load = dispatch.source == SwapSource::kResident
                              ? Duration()
                              : TransferTime(function.weights, BytesPerSecond{12e9});
    for (const ModelNumber& victim : dispatch.victims)
      Timed(all_, [&] { return scheduler_.Apply(EvictDone{dispatch.gpu, victim, {}}, now_); });
    Time end = now_ + load;
    if (!dispatch.ahead) {
      Time& free = gpu_free_[dispatch.gpu];
      end = free = std::max(free, now_) + load + function.run;
    }
    outcomes_.push({end, outcome_++, std::move(dispatch), function.run, load});
  }

  std::uint64_t Run(std::uint64_t count) {
    for (std::uint64_t done = 0; done < count;) {
      const Outcome outcome = outcomes_.top();
      outcomes_.pop();
      now_ = outcome.at;
      const Dispatch& dispatch = outcome.dispatch;
      if (outcome.load > Duration()) {
        const Bytes weights = functions_[by_model_.at(dispatch.model)].weights;
        const SwapInDone done_load{dispatch.gpu, dispatch.model, {}, weights, outcome.load};
        Timed(all_, [&] { return scheduler_.Apply(done_load, now_); });
      }
      if (!dispatch.ahead) {
        const RunDone done_run{.gpu = dispatch.gpu, .request = dispatch.request, .took = outcome.run};
        Timed(all_, [&] { return scheduler_.Apply(done_run, now_); });
        Submit();
        ++done;
      }
      Decide();
    }
    return count;
  }

  Names names_;
  SwapScheduler scheduler_;
  Random random_{7};
  std::vector<Function> functions_;
  absl::flat_hash_map<ModelNumber, std::size_t> by_model_;
  std::vector<double> popularity_;  // cumulative sums
  std::vector<Time> gpu_free_;
  std::priority_queue<Outcome, std::vector<Outcome>, std::greater<>> outcomes_;
  Time now_{};
  std::uint64_t next_ = 0, outcome_ = 0;
  WallClock::duration decide_{}, all_{};
};

int Main(int argc, char** argv) {
  std::uint32_t gpus = 0, functions = 0;
  std::uint64_t decisions = 20'000;
  if (argc < 4 || argc > 5 || !absl::SimpleAtoi(argv[1], &gpus) || !absl::SimpleAtoi(argv[2], &functions) ||
      gpus == 0 || functions == 0 || (argc == 5 && !absl::SimpleAtoi(argv[4], &decisions))) {
    std::cerr << "scheduler_bench GPUS FUNCTIONS PRESET [DECISIONS]: two numbers above 0 and a preset\n";
    return 2;
  }
  auto names = FindPreset(argv[3]);
  if (!names
           .ok()) {  // else it is a gpu policy beside LALB's other policies, since LALB's forms are not presets
    names = FindPreset("lalb-o3");
    names->gpu = argv[3];
    if (const auto gpu = FindGpuPolicy(argv[3]); !gpu.ok()) {
      std::cerr << gpu.status().message() << "\n";
      return 2;
    }
  }
  const Figures figures = Load(gpus, functions, *names).Measure(decisions);
  const std::string suffix = absl::StrCat("/", gpus, "/", functions, "/", argv[3]);
  std::cout << "decision_us" << suffix << " " << figures.decide_us << " us\n"
            << "request_us" << suffix << " " << figures.request_us << " us\n"
            << "hit_ratio" << suffix << " " << figures.hits << " ratio\n";
  return 0;
}

}  // namespace
}  // namespace troupe::node::bench

int main(int argc, char** argv) {
  return troupe::node::bench::Main(argc, argv);
}
