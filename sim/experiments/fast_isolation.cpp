// FaST-GShare's isolation (001, 5.2 and 5.3): a function beside a neighbour that is asked for four times what it
// can serve, functions whose quotas add up to more than there is, and throughput by quota.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "sim/experiments/fast_setup.hpp"

namespace troupe::sim {

namespace {

constexpr Duration kLength = std::chrono::seconds(60);
constexpr double kLoad = 0.4;  // of what the function can serve by its share and quota
constexpr double kOverload = 4;
constexpr std::uint32_t kClients = 4;
const std::vector<std::string>& Policies() {
  static const std::vector<std::string> kPolicies = {"racing", "exclusive", "time-sharing", "fast",
                                                     "fast-bypass"};
  return kPolicies;
}

// Two functions of one model, each one instance at a time.
struct Neighbours {
  const char* name;
  Sharing function, neighbour;
};
constexpr Neighbours kNeighbours[] = {
    // Half of the SMs each, all of the time.
    {"half", {.sm_partition = 50, .instances = 1}, {.sm_partition = 50, .instances = 1}},
    // All SMs, half of the time at least, and the neighbour half at most.
    {"quota", {.quota_request = 50, .quota_limit = 80}, {.quota_request = 50, .quota_limit = 50}},
    // Both.
    {"both",
     {.sm_partition = 50, .quota_request = 50, .quota_limit = 80},
     {.sm_partition = 50, .quota_request = 50, .quota_limit = 50}},
};

// By what it declares, whatever the policy makes of it.
double CapacityOf(const Sharing& sharing, const RunCost& cost) {
  const Duration run = cost.On(SharedGpuLadder().For(sharing.sm_partition));
  return (sharing.quota_request == 0 ? 100 : sharing.quota_request) / 100.0 / ToSeconds(run);
}

absl::StatusOr<Summary> BesideNeighbour(const std::string& policy, const Neighbours& both,
                                        const RunCost& cost, std::uint64_t seed) {
  SharedGpuSetup setup{.policy = policy,
                       .functions = {{.name = "f",
                                      .sharing = ToProto(both.function),
                                      .cost = cost,
                                      .rate = kLoad * CapacityOf(both.function, cost)}},
                       .length = kLength,
                       .seed = seed};
  TROUPE_ASSIGN_OR_RETURN(auto alone, ShareGpu(setup));
  setup.functions.push_back({.name = "neighbour",
                             .sharing = ToProto(both.neighbour),
                             .cost = cost,
                             .rate = kOverload * CapacityOf(both.neighbour, cost)});
  TROUPE_ASSIGN_OR_RETURN(auto beside, ShareGpu(setup));
  const double before = ToMillis(NearestRank(alone.functions[0].latencies, 98));
  const double after = ToMillis(NearestRank(beside.functions[0].latencies, 98));
  return Summary{{"p98_alone_ms", before},
                 {"p98_ms", after},
                 {"p98_ratio", after / before},
                 {"served", static_cast<double>(beside.functions[0].served) /
                                static_cast<double>(std::max<std::uint64_t>(beside.functions[0].asked, 1))},
                 {"neighbour_per_s", static_cast<double>(beside.functions[1].served) / ToSeconds(kLength)}};
}

// Fig. 9: ResNet may have 50 to 80 % of the time, RNNT 50 %: more than there is, unless they compute beside each
// other.
absl::StatusOr<Summary> BesideElastic(const std::string& policy, const RunCost& resnet, const RunCost& rnnt,
                                      std::uint64_t seed) {
  SharedGpuSetup setup{
      .policy = policy,
      .functions = {{.name = "resnet",
                     .sharing = ToProto({.sm_partition = 24, .quota_request = 50, .quota_limit = 80}),
                     .cost = resnet,
                     .clients = kClients}},
      .length = kLength,
      .seed = seed};
  TROUPE_ASSIGN_OR_RETURN(const auto alone, ShareGpu(setup));
  setup.functions.push_back({.name = "rnnt",
                             .sharing = ToProto({.sm_partition = 24, .quota_request = 50, .quota_limit = 50}),
                             .cost = rnnt,
                             .clients = kClients});
  TROUPE_ASSIGN_OR_RETURN(const auto beside, ShareGpu(setup));
  const auto rate = [](const FunctionOutcome& function) {
    return static_cast<double>(function.served) / ToSeconds(kLength);
  };
  return Summary{{"resnet_alone_per_s", rate(alone.functions[0])},
                 {"resnet_per_s", rate(beside.functions[0])},
                 {"rnnt_per_s", rate(beside.functions[1])},
                 {"kept", rate(beside.functions[0]) / rate(alone.functions[0])}};
}

// Fig. 8, in time: what a function gets at a limit, beside what the line through its rate at 100 % says.
absl::StatusOr<Summary> AtQuota(std::uint32_t quota, const RunCost& cost, std::uint64_t seed) {
  const auto at = [&](std::uint32_t percent) {
    return ShareGpu(
        {.policy = "fast",
         .functions = {{.name = "f",
                        .sharing =
                            ToProto({.sm_partition = 24, .quota_request = percent, .quota_limit = percent}),
                        .cost = cost,
                        .clients = kClients}},
         .length = kLength,
         .seed = seed});
  };
  TROUPE_ASSIGN_OR_RETURN(const auto whole, at(100));
  TROUPE_ASSIGN_OR_RETURN(const auto outcome, at(quota));
  const FunctionOutcome& function = outcome.functions[0];
  const double part = quota / 100.0;
  const double served = static_cast<double>(function.served);
  const Duration most = *std::ranges::max_element(function.in_windows);
  return Summary{{"served_per_s", served / ToSeconds(kLength)},
                 {"of_line", served / (part * static_cast<double>(whole.functions[0].served))},
                 {"used_of_quota", ToSeconds(function.computed) / (part * ToSeconds(kLength))},
                 {"most_over_quota_ms", ToMillis(most) - part * 1000}};
}

}  // namespace

absl::StatusOr<std::vector<Figure>> FastIsolation(const ExperimentOptions& options) {
  TROUPE_ASSIGN_OR_RETURN(const auto table, FastTable::Read(options.data));
  TROUPE_ASSIGN_OR_RETURN(const auto resnet, table.CostOf("ResNet"));
  TROUPE_ASSIGN_OR_RETURN(const auto rnnt, table.CostOf("RNNT"));
  Sweep sweep{.experiment = "fast-isolation",
              .cases = {},
              .quantities = {{"p98_alone_ms", "ms"},
                             {"p98_ms", "ms"},
                             {"p98_ratio", "x"},
                             {"served", ""},
                             {"neighbour_per_s", "1/s"},
                             {"resnet_alone_per_s", "1/s"},
                             {"resnet_per_s", "1/s"},
                             {"rnnt_per_s", "1/s"},
                             {"kept", ""},
                             {"served_per_s", "1/s"},
                             {"of_line", ""},
                             {"used_of_quota", ""},
                             {"most_over_quota_ms", "ms"}},
              .summarize = nullptr,
              .paper = {}};
  const auto wanted = SharingPresets(options, Policies());
  const auto baseline = [](const std::string& part, const std::string& policy) {
    return policy == "racing" ? "" : part + "/racing";
  };
  std::vector<FastCase> cases;
  for (const Neighbours& both : kNeighbours)
    for (const std::string& policy : wanted)
      cases.push_back(
          {.key = absl::StrCat(both.name, "/", policy),
           .baseline = baseline(both.name, policy),
           .run = [=](std::uint64_t seed) { return BesideNeighbour(policy, both, resnet, seed); }});
  for (const std::string& policy : wanted)
    cases.push_back({.key = "elastic/" + policy,
                     .baseline = baseline("elastic", policy),
                     .run = [=](std::uint64_t seed) { return BesideElastic(policy, resnet, rnnt, seed); }});
  for (const std::uint32_t quota : {20, 40, 60, 80, 100})
    cases.push_back({.key = absl::StrCat("quotas/", quota, "/fast"),
                     .baseline = "",
                     .run = [=](std::uint64_t seed) { return AtQuota(quota, resnet, seed); }});
  return RunFast(std::move(sweep), cases, options);
}

}  // namespace troupe::sim
