#include "sim/experiments/fixed_placement.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>
#include <optional>
#include <queue>
#include <utility>

#include "absl/strings/str_cat.h"

namespace troupe::sim {

namespace {

// At the begin a step that costs so much is taken as often as 1 of e; at the end none.
constexpr double kWarmest = 0.02;  // seconds

std::size_t CopiesOf(const Placement& placement, std::size_t function) {
  return static_cast<std::size_t>(
      std::ranges::count_if(placement, [&](const auto& gpu) { return gpu[function]; }));
}

Bytes UsedOf(const PlacementProblem& problem, const std::vector<bool>& gpu) {
  Bytes used;
  for (std::size_t i = 0; i < gpu.size(); ++i)
    if (gpu[i]) used += problem.functions[i].memory;
  return used;
}

bool Fits(const PlacementProblem& problem, const std::vector<bool>& gpu, std::size_t function) {
  return UsedOf(problem, gpu) + problem.functions[function].memory <= problem.gpu_memory;
}

// The requests of each function.
std::vector<double> AskedOf(std::size_t functions, std::span<const Workload> workloads) {
  std::vector<double> asked(functions);
  for (const Workload& workload : workloads)
    for (const Arrival& arrival : workload.arrivals) asked[arrival.function] += 1;
  return asked;
}

// How much the functions of each GPU need it: their requests, shared among their copies.
std::vector<double> NeedOf(const Placement& placement, std::vector<double> asked) {
  for (std::size_t i = 0; i < asked.size(); ++i)
    asked[i] /= static_cast<double>(std::max<std::size_t>(CopiesOf(placement, i), 1));
  std::vector<double> need;
  for (const auto& gpu : placement) {
    double sum = 0;
    for (std::size_t i = 0; i < gpu.size(); ++i) sum += gpu[i] ? asked[i] : 0;
    need.push_back(sum);
  }
  return need;
}

// One pass of a workload over the GPUs.
class Pass {
 public:
  Pass(const PlacementProblem& problem, const Placement& placement, const std::vector<double>& need)
      : problem_(problem), placement_(placement), need_(need), idle_(placement.size(), true) {}

  Duration Go(const Workload& workload) {
    for (const Arrival& arrival : workload.arrivals) {
      while (!ends_.empty() && ends_.top().first <= arrival.at) EndFirst();
      if (const auto gpu = IdleFor(arrival.function)) {
        Begin(*gpu, arrival, arrival.at);
      } else {
        waiting_.push_back(arrival);
      }
    }
    while (!ends_.empty()) EndFirst();
    return waited_;
  }

 private:
  [[nodiscard]] std::optional<std::size_t> IdleFor(std::uint32_t function) const {
    std::optional<std::size_t> best;
    for (std::size_t gpu = 0; gpu < placement_.size(); ++gpu)
      if (idle_[gpu] && placement_[gpu][function] && (!best || need_[gpu] < need_[*best])) best = gpu;
    return best;
  }
  void Begin(std::size_t gpu, const Arrival& arrival, Duration now) {
    idle_[gpu] = false;
    waited_ += now - arrival.at;
    ends_.emplace(now + problem_.functions[arrival.function].run, gpu);
  }
  void EndFirst() {
    const Duration now = ends_.top().first;
    const std::size_t gpu = ends_.top().second;
    ends_.pop();
    idle_[gpu] = true;
    const auto next =
        std::ranges::find_if(waiting_, [&](const Arrival& a) { return placement_[gpu][a.function]; });
    if (next == waiting_.end()) return;
    Begin(gpu, *next, now);
    waiting_.erase(next);
  }

  const PlacementProblem& problem_;
  const Placement& placement_;
  const std::vector<double>& need_;
  std::vector<bool> idle_;
  std::deque<Arrival> waiting_;
  using End = std::pair<Duration, std::size_t>;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
  Duration waited_{};
};

// Largest first, each to the GPU with the most room.
absl::StatusOr<Placement> FirstPlacement(const PlacementProblem& problem) {
  Placement placement(problem.gpus, std::vector<bool>(problem.functions.size()));
  std::vector<std::size_t> order(problem.functions.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater<>(), [&](auto i) { return problem.functions[i].memory; });
  for (const std::size_t function : order) {
    const auto gpu =
        std::ranges::min_element(placement, {}, [&](const auto& g) { return UsedOf(problem, g); });
    if (gpu == placement.end() || !Fits(problem, *gpu, function))
      return absl::FailedPreconditionError(
          absl::StrCat(problem.functions.size(), " functions do not fit on ", problem.gpus, " GPUs of ",
                       FormatBytes(problem.gpu_memory), " each: there is no placement that never changes"));
    (*gpu)[function] = true;
  }
  return placement;
}

// A function comes to a GPU, and others leave it by lot; a function on no GPU then comes to one that has
// room. False: there is none.
bool Step(const PlacementProblem& problem, Random& random, Placement& placement) {
  const std::size_t function = random.Below(problem.functions.size());
  auto& gpu = placement[random.Below(placement.size())];
  if (gpu[function] || problem.functions[function].memory > problem.gpu_memory) return false;
  std::vector<std::size_t> gone;
  while (!Fits(problem, gpu, function)) {
    std::size_t victim = random.Below(gpu.size());
    while (!gpu[victim]) victim = (victim + 1) % gpu.size();
    gpu[victim] = false;
    gone.push_back(victim);
  }
  gpu[function] = true;
  for (const std::size_t victim : gone) {
    if (CopiesOf(placement, victim) > 0) continue;
    const std::size_t first = random.Below(placement.size());
    std::size_t tried = 0;
    const auto at = [&] { return (first + tried) % placement.size(); };
    while (tried < placement.size() && !Fits(problem, placement[at()], victim)) ++tried;
    if (tried == placement.size()) return false;
    placement[at()][victim] = true;
  }
  return true;
}

Duration MeanWait(const PlacementProblem& problem, const Placement& placement,
                  std::span<const Workload> workloads, const std::vector<double>& asked) {
  const auto need = NeedOf(placement, asked);
  Duration waited{};
  std::size_t requests = 0;
  for (const Workload& workload : workloads) {
    waited += Pass(problem, placement, need).Go(workload);
    requests += workload.arrivals.size();
  }
  return requests == 0 ? Duration() : waited / static_cast<Duration::rep>(requests);
}

}  // namespace

Duration MeanWait(const PlacementProblem& problem, const Placement& placement,
                  std::span<const Workload> workloads) {
  return MeanWait(problem, placement, workloads, AskedOf(problem.functions.size(), workloads));
}

absl::StatusOr<Placement> FindPlacement(const PlacementProblem& problem, std::span<const Workload> workloads,
                                        std::uint32_t steps, Random& random) {
  auto placement = FirstPlacement(problem);
  if (!placement.ok()) return placement.status();
  const auto asked = AskedOf(problem.functions.size(), workloads);
  Placement now = *placement;
  Duration waits = MeanWait(problem, now, workloads, asked);
  Duration least = waits;
  for (std::uint32_t step = 0; step < steps; ++step) {
    Placement next = now;
    for (std::uint64_t changes = 1 + random.Below(3); changes > 0; --changes)
      if (!Step(problem, random, next)) next = now;
    if (next == now) continue;
    const Duration then = MeanWait(problem, next, workloads, asked);
    const double warmth = kWarmest * (1 - static_cast<double>(step) / steps);
    if (then >= waits && random.Uniform() >= std::exp(ToSeconds(waits - then) / warmth)) continue;
    now = std::move(next);
    waits = then;
    if (waits >= least) continue;
    least = waits;
    *placement = now;
  }
  return placement;
}

}  // namespace troupe::sim
