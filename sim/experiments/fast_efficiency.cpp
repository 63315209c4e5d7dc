// What FaST-GShare's placement makes of its GPUs (001, 5.4, Fig. 11): the part of the time in which a GPU computes, and of
// its SMs that are used, while 4 ResNet, 2 RNNT and 2 BERT instances are asked without a pause. The manager's table of
// rectangles places them (cluster/rectangles), the worker's token scheduler lets them run (sim/shared_gpu.hpp).
#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "cluster/rectangles/rectangle_table.hpp"
#include "sim/experiments/fast_setup.hpp"

namespace troupe::sim {

namespace {

constexpr Duration kWatched = std::chrono::seconds(60);
constexpr std::uint32_t kGpus = 8;
constexpr std::uint32_t kAsking = 2;  // clients of each instance
constexpr const char* kV100 = "v100";
constexpr const char* kInstanceModels[] = {"ResNet", "RNNT", "BERT"};

struct EfficiencyPreset {
  const char* name;
  const char* packing;  // cluster/rectangles/packing_policy.hpp
  const char* sharing;  // of the slot `sharing`
};
// The first is what the others stand beside: the fewest GPUs that time sharing can do with.
constexpr EfficiencyPreset kEfficiencyPresets[] = {
    {"time-sharing-replan", "time-sharing-replan", "time-sharing"},
    {"time-sharing", "time-sharing", "time-sharing"},
    {"fast", "best-area-fit", "fast"},
    {"troupe", "replan", "fast"}};

struct Instance {
  std::string model;
  FastTable::Pods pods;
  RunCost cost;
};

// The paper prints no figure of BERT but its part of a GPU. That it makes use of all of this part, and how long a run
// takes, are assumptions.
absl::StatusOr<RunCost> CostOf(const FastTable& table, const std::string& model,
                               const FastTable::Pods& pods) {
  if (model != "BERT") return table.CostOf(model);
  return RunCost{.time = std::chrono::milliseconds(25), .saturation = pods.sm_percent / 100.0};
}

absl::StatusOr<std::vector<Instance>> InstancesOf(const FastTable& table) {
  std::vector<Instance> instances;
  for (const std::string model : kInstanceModels) {
    TROUPE_ASSIGN_OR_RETURN(const auto pods, table.PodsToPack(model));
    TROUPE_ASSIGN_OR_RETURN(const auto cost, CostOf(table, model, pods));
    instances.insert(instances.end(), pods.count, {model, pods, cost});
  }
  return instances;
}

// The instances of each GPU that has one, by their numbers.
absl::StatusOr<std::map<std::string, std::vector<std::size_t>>> Placements(
    const EfficiencyPreset& preset, const std::vector<Instance>& instances) {
  TROUPE_ASSIGN_OR_RETURN(const auto policy, cluster::FindPackingPolicy(preset.packing));
  cluster::RectangleTable table(policy);
  for (std::uint32_t gpu = 0; gpu < kGpus; ++gpu)
    TROUPE_RETURN_IF_ERROR(table.AddGpu({.name = absl::StrCat("gpu-", gpu),
                                         .node = absl::StrCat("node-", gpu),
                                         .kind = kV100,
                                         .memory = GiB(16)}));
  for (std::size_t i = 0; i < instances.size(); ++i) {
    const cluster::Extent extent{.quota = instances[i].pods.quota_percent,
                                 .sms = instances[i].pods.sm_percent};
    TROUPE_RETURN_IF_ERROR(
        table.Place({.id = i, .function = instances[i].model, .by_kind = {{kV100, {.extent = extent}}}})
            .status());
  }
  std::map<std::string, std::vector<std::size_t>> placements;
  for (std::size_t i = 0; i < instances.size(); ++i) placements[table.GpuOf(i)].push_back(i);
  return placements;
}

// An instance's part of the time is its quota and no more; without shares of the SMs it runs on all of them.
SharedFunction FunctionOf(const EfficiencyPreset& preset, const Instance& instance, std::size_t number) {
  Sharing sharing{.quota_request = instance.pods.quota_percent,
                  .quota_limit = instance.pods.quota_percent,
                  .instances = 1};
  if (std::string_view(preset.sharing) == "fast") sharing.sm_partition = instance.pods.sm_percent;
  return {.name = absl::StrCat(instance.model, "-", number),
          .sharing = ToProto(sharing),
          .cost = instance.cost,
          .clients = kAsking};
}

absl::StatusOr<Summary> Watch(const EfficiencyPreset& preset, const std::vector<Instance>& instances,
                              std::uint64_t seed) {
  TROUPE_ASSIGN_OR_RETURN(const auto placements, Placements(preset, instances));
  double computing = 0, sms = 0, served = 0;
  for (const auto& [gpu, numbers] : placements) {
    SharedGpuSetup setup{.policy = preset.sharing, .functions = {}, .length = kWatched, .seed = seed};
    for (const auto number : numbers)
      setup.functions.push_back(FunctionOf(preset, instances[number], number));
    TROUPE_ASSIGN_OR_RETURN(const SharedGpuOutcome outcome, ShareGpu(setup));
    computing += outcome.computing;
    sms += outcome.sms;
    for (const auto& function : outcome.functions) served += static_cast<double>(function.served);
  }
  const auto gpus = static_cast<double>(placements.size());
  const double per_second = served / ToSeconds(kWatched);
  return Summary{{"gpus", gpus},
                 {"utilisation", computing / gpus},
                 {"sms_used", sms / gpus},
                 {"served_per_s", per_second},
                 {"served_per_s_of_a_gpu", per_second / gpus}};
}

}  // namespace

absl::StatusOr<std::vector<Figure>> FastEfficiency(const ExperimentOptions& options) {
  TROUPE_ASSIGN_OR_RETURN(const auto table, FastTable::Read(options.data));
  TROUPE_ASSIGN_OR_RETURN(const auto instances, InstancesOf(table));
  TROUPE_ASSIGN_OR_RETURN(const double paper_gpus, table.Value("GPUs needed FaST-Scheduler", "mix", "gpus"));
  TROUPE_ASSIGN_OR_RETURN(const double paper_shared, table.Value("GPUs needed time sharing", "mix", "gpus"));
  std::vector<std::string> names;
  for (const EfficiencyPreset& preset : kEfficiencyPresets) names.emplace_back(preset.name);
  const auto wanted = SharingPresets(options, names);
  std::vector<FastCase> cases;
  for (const EfficiencyPreset& preset : kEfficiencyPresets) {
    if (std::ranges::find(wanted, preset.name) == wanted.end()) continue;
    cases.push_back({.key = absl::StrCat("mix/", preset.name),
                     .baseline = &preset == kEfficiencyPresets ? "" : "mix/time-sharing-replan",
                     .run = [&](std::uint64_t seed) { return Watch(preset, instances, seed); }});
  }
  return RunFast({.experiment = "fast-efficiency",
                  .cases = {},
                  .quantities = {{"gpus", ""},
                                 {"utilisation", ""},
                                 {"sms_used", ""},
                                 {"served_per_s", "1/s"},
                                 {"served_per_s_of_a_gpu", "1/s"}},
                  .summarize = nullptr,
                  .paper = {{"mix/time-sharing-replan/gpus", paper_shared},
                            {"mix/time-sharing/gpus", paper_shared},
                            {"mix/fast/gpus", paper_gpus},
                            {"mix/troupe/gpus", paper_gpus}}},
                 cases, options);
}

}  // namespace troupe::sim
