// A yardstick for LALB's overlapped loads: the models on the same GPUs from the begin, where they lie best
// for requests like these, beside ours, which knows no rates and brings each model when it is deployed or
// asked for. It is found on the workloads of other seeds, and tried on those of this run.
#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "sim/experiments/experiment.hpp"
#include "sim/experiments/fixed_placement.hpp"
#include "sim/experiments/lalb_setup.hpp"

namespace troupe::sim {

namespace {

constexpr std::uint32_t kSteps = 40000;
constexpr std::uint64_t kFoundOn = 4, kOtherSeeds = 1000;

absl::StatusOr<PlacementProblem> ProblemOf(const LalbInputs& inputs, const Workload& workload) {
  const auto cluster = LalbCluster(inputs.models, LoadMode::kOverlapped);
  TROUPE_ASSIGN_OR_RETURN(const auto models, AssignModels(cluster, workload.functions));
  PlacementProblem problem{.gpus = cluster.gpus, .gpu_memory = cluster.gpu_memory, .functions = {}};
  for (const std::size_t model : models)
    problem.functions.push_back(
        {.memory = cluster.models[model].memory, .run = cluster.models[model].times.run});
  return problem;
}

Duration MeanRun(const PlacementProblem& problem, const Workload& workload) {
  if (workload.arrivals.empty()) return {};
  Duration sum{};
  for (const Arrival& arrival : workload.arrivals) sum += problem.functions[arrival.function].run;
  return sum / static_cast<Duration::rep>(workload.arrivals.size());
}

}  // namespace

absl::StatusOr<std::vector<Figure>> LalbPlacement(const ExperimentOptions& options) {
  TROUPE_ASSIGN_OR_RETURN(const auto inputs, ReadLalbInputs(options));
  TROUPE_ASSIGN_OR_RETURN(const auto policies, FindPreset("troupe"));
  std::vector<Figure> figures;
  for (const int working_set : kWorkingSets) {
    const auto goes_on = [&](const std::string& what) {
      return !options.go_on || options.go_on(absl::StrCat(working_set, " functions, ", what));
    };
    if (!goes_on("a placement for them")) return figures;
    std::vector<Workload> known;
    for (std::uint64_t i = 1; i <= kFoundOn; ++i)
      known.push_back(LalbWorkload(inputs, working_set, kOtherSeeds + i));
    TROUPE_ASSIGN_OR_RETURN(const auto problem, ProblemOf(inputs, known.front()));
    Random random(1);
    TROUPE_ASSIGN_OR_RETURN(const auto placement, FindPlacement(problem, known, kSteps, random));
    const auto name = absl::StrCat("lalb-placement/", working_set);
    Figure fixed{.name = name + "/fixed/mean_s", .unit = "s", .values = {}, .paper = {}, .baseline = {}};
    Figure ours{.name = name + "/troupe+overlap/mean_s",
                .unit = "s",
                .values = {},
                .paper = {},
                .baseline = fixed.name};
    for (std::uint64_t seed = 1; seed <= options.seeds && goes_on(absl::StrCat("seed ", seed)); ++seed) {
      const Workload workload = LalbWorkload(inputs, working_set, seed);
      fixed.values.push_back(
          ToSeconds(MeanRun(problem, workload) + MeanWait(problem, placement, std::span(&workload, 1))));
      TROUPE_ASSIGN_OR_RETURN(const auto outcome, RunLalb(inputs, working_set,
                                                          {"troupe", LoadMode::kOverlapped}, policies, seed));
      ours.values.push_back(ToSeconds(outcome.MeanLatency()));
    }
    if (fixed.values.empty()) return figures;
    figures.push_back(std::move(fixed));
    figures.push_back(std::move(ours));
  }
  return figures;
}

}  // namespace troupe::sim
