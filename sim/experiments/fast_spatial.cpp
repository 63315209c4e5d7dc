// FaST-GShare's spatial sharing (001, 5.3): eight instances of 12 % of the SMs against one on all of them.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "sim/experiments/fast_setup.hpp"

namespace troupe::sim {

namespace {

constexpr Duration kLength = std::chrono::seconds(60);
// Each asks again when it is answered. The paper does not say how many it had.
constexpr std::uint32_t kClients = 16;
constexpr const char* kModels[] = {"ResNet", "RNNT", "GNMT"};

struct Instances {
  const char* name;
  const char* policy;
  Sharing sharing;
};
// The first is what the others stand beside: one instance that has the GPU for itself.
constexpr Instances kInstances[] = {
    {"racing", "racing", {.instances = 1}},           {"racing-8", "racing", {.instances = 8}},
    {"exclusive", "exclusive", {.sm_partition = 12}}, {"time-sharing", "time-sharing", {.sm_partition = 12}},
    {"fast", "fast", {.sm_partition = 12}},           {"fast-bypass", "fast-bypass", {.sm_partition = 12}},
    {"fast-24", "fast", {.sm_partition = 24}},
};

absl::StatusOr<double> RateOf(const SharedGpuSetup& setup, Summary& summary) {
  TROUPE_ASSIGN_OR_RETURN(SharedGpuOutcome outcome, ShareGpu(setup));
  FunctionOutcome& function = outcome.functions.front();
  const double rate = static_cast<double>(function.served) / ToSeconds(setup.length);
  summary = {{"served_per_s", rate},
             {"p98_ms", ToMillis(NearestRank(function.latencies, 98))},
             {"computing", outcome.computing},
             {"sms_used", outcome.sms}};
  return rate;
}

SharedGpuSetup SetupOf(const Instances& instances, const RunCost& cost, std::uint64_t seed) {
  return {
      .policy = instances.policy,
      .functions = {{.name = "f", .sharing = ToProto(instances.sharing), .cost = cost, .clients = kClients}},
      .length = kLength,
      .seed = seed};
}

// What the profile alone says: as many instances as there is room for, each as fast as on its share.
double AllowedBy(const RunCost& cost, const Sharing& sharing) {
  const ShareLadder ladder = SharedGpuLadder();
  if (sharing.sm_partition == 0) return 1 / ToSeconds(cost.time);
  const SmShare share = ladder.For(sharing.sm_partition);
  return ladder.units() / share.units / ToSeconds(cost.On(share));
}

}  // namespace

absl::StatusOr<std::vector<Figure>> FastSpatial(const ExperimentOptions& options) {
  TROUPE_ASSIGN_OR_RETURN(const auto table, FastTable::Read(options.data));
  Sweep sweep{.experiment = "fast-spatial",
              .cases = {},
              .quantities = {{"served_per_s", "1/s"},
                             {"gain", "x"},
                             {"profile_gain", "x"},
                             {"of_profile", ""},
                             {"p98_ms", "ms"},
                             {"computing", ""},
                             {"sms_used", ""}},
              .summarize = nullptr,
              .paper = {}};
  const auto wanted = SharingPresets(options, {"racing", "exclusive", "time-sharing", "fast", "fast-bypass"});
  std::vector<FastCase> cases;
  for (const std::string model : kModels) {
    TROUPE_ASSIGN_OR_RETURN(const auto cost, table.CostOf(model));
    TROUPE_ASSIGN_OR_RETURN(const double eight, table.Rate(model, "12"));
    TROUPE_ASSIGN_OR_RETURN(const double one, table.Rate(model, "100"));
    sweep.paper[model + "/racing/served_per_s"] = one;
    sweep.paper[model + "/fast/served_per_s"] = eight;
    sweep.paper[model + "/fast/gain"] = eight / one;
    for (const Instances& instances : kInstances) {
      if (std::ranges::find(wanted, instances.policy) == wanted.end()) continue;
      const bool first = &instances == kInstances;
      cases.push_back(
          {.key = absl::StrCat(model, "/", instances.name),
           .baseline = first ? "" : model + "/racing",
           .run = [cost, instances](std::uint64_t seed) -> absl::StatusOr<Summary> {
             Summary alone;
             Summary summary;
             TROUPE_ASSIGN_OR_RETURN(const double base, RateOf(SetupOf(kInstances[0], cost, seed), alone));
             TROUPE_ASSIGN_OR_RETURN(const double rate, RateOf(SetupOf(instances, cost, seed), summary));
             summary["gain"] = rate / base;
             if (std::string_view(instances.name).starts_with("fast")) {
               const double allowed = AllowedBy(cost, instances.sharing);
               summary["profile_gain"] = allowed * ToSeconds(cost.time);
               summary["of_profile"] = rate / allowed;
             }
             return summary;
           }});
    }
  }
  return RunFast(std::move(sweep), cases, options);
}

}  // namespace troupe::sim
