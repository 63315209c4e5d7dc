// Networks that are resident, and networks that come over the link: native runs, the ladder of swap policies,
// the use of the link, the start of a function.
#include <algorithm>

#include "bench/device_bed.hpp"
#include "gpu/swap/swap_policy.hpp"

namespace troupe::gpu::bench {
namespace {

// One step of the ladder: a worker of its own, which holds one network at a time.
struct Step {
  std::string name;
  std::unique_ptr<Rig> rig;
};

double Since(const proto::WorkerOutcome& swapped, std::int64_t at) {
  return static_cast<double>(at - swapped.begin_ns()) * 1e-6;
}

// Both orders are given at once, as for a function whose model is on the host; times in ms since the orders.
struct Swapped {
  double total = 0;  // the outputs have arrived
  double start = 0;  // the first step runs
  double first = 0;  // the weights of the first step have arrived
};

Swapped SwapAndRun(Rig& rig, const Network& network) {
  const HostedModel& model = network.model;
  const std::uint64_t swap = rig.Send(SwapInOf(model.copy));
  const proto::WorkerOutcome ran = rig.Await(rig.Send(model.run));
  const proto::WorkerOutcome swapped = rig.Await(swap);
  rig.Evict(model.digest);
  const auto& groups = swapped.swap_in().group_ns();
  const std::uint64_t size = swapped.swap_in().group_bytes();
  const int needed =
      size == 0 || network.first_weights == 0 ? 0 : static_cast<int>((network.first_weights - 1) / size);
  Swapped result;
  result.total = Since(swapped, ran.end_ns());
  result.start = Since(swapped, ran.run().first_step_ns());
  result.first = Since(swapped, groups[std::min(needed, groups.size() - 1)]);
  return result;
}

constexpr int kWarm = 3;  // runs: the first touches memory, then graphs are recorded and replayed

struct Native {
  double run = 0;      // order to outcome
  double compute = 0;  // the part of it that is on the device
};

Native Resident(Rig& rig, const HostedModel& model) {
  (void)rig.Ask(SwapInOf(model.copy));
  for (int i = 0; i < kWarm; ++i) (void)rig.Ask(model.run);
  const proto::WorkerOutcome ran = rig.Ask(model.run);
  rig.Evict(model.digest);
  return {Took(ran), static_cast<double>(ran.run().compute_ns()) * 1e-6};
}

// The speed of a swap while nothing runs.
double LinkUse(Rig& rig, const HostedModel& model) {
  const proto::WorkerOutcome swapped = rig.Ask(SwapInOf(model.copy));
  rig.Evict(model.digest);
  return static_cast<double>(model.weights) * 1e-6 /
         Since(swapped, *std::ranges::max_element(swapped.swap_in().group_ns()));
}

std::vector<Step> StartLadder(Bed& bed) {
  std::vector<Step> ladder;
  const auto add = [&](const std::string& name, const std::string& swap, WeightAddresses addresses) {
    WorkerCommand command;
    command.swap = swap;
    command.addresses = addresses;
    ladder.push_back({name, bed.Start(command, bed.largest() + bed.options().spare)});
  };
  for (const auto& policy : SwapPolicies())
    add(std::string(policy.name), std::string(policy.name), WeightAddresses::kAdjacent);
  add("mapped", std::string(kDefaultSwap), WeightAddresses::kMapped);
  return ladder;
}

void MeasureNetwork(Bed& bed, std::vector<Step>& ladder, const Network& network) {
  const HostedModel& model = network.model;
  for (Step& step : ladder) {
    (void)step.rig->Ask(model.prepare);
    (void)SwapAndRun(*step.rig, network);  // libraries choose and load their kernels
  }
  Rig& grouped = *std::ranges::find(ladder, std::string(kDefaultSwap), &Step::name)->rig;
  const double link = grouped.description().link_bytes_per_second() * 1e-9;  // GB/s of a plain pinned copy
  const double link_ms = static_cast<double>(model.weights) * 1e-6 / link;
  const std::string at = absl::StrCat("/", network.name);
  Say(absl::StrCat("weights_mb", at), static_cast<double>(model.weights) * 1e-6);
  for (int round = 0; round < bed.options().rounds; ++round) {
    const Native native = Resident(grouped, model);
    Say(absl::StrCat("native_ms", at), native.run);
    Say(absl::StrCat("compute_ms", at), native.compute);
    Say(absl::StrCat("link_use", at), LinkUse(grouped, model), link);
    for (Step& step : ladder) {
      const Swapped swapped = SwapAndRun(*step.rig, network);
      Say(absl::StrCat("swap_run_ms", at, "/", step.name), swapped.total, native.run);
      if (step.name != kDefaultSwap) continue;
      Say(absl::StrCat("swap_run_over_max", at), swapped.total, std::max(link_ms, native.compute));
      Say(absl::StrCat("function_start_ms", at), swapped.start, swapped.first + 2);
    }
  }
}

}  // namespace

void MeasureSwaps(Bed& bed) {
  std::vector<Step> ladder = StartLadder(bed);
  for (const Network& network : bed.networks()) MeasureNetwork(bed, ladder, network);
}

}  // namespace troupe::gpu::bench
