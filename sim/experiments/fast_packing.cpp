// FaST-GShare's placement (001, 5.4): the GPUs that 4 ResNet, 2 RNNT and 2 BERT instances need, in every order in which
// they can come, and instances of the profiler's grid that come and go at random. The manager's own table of rectangles
// decides (cluster/rectangles); nothing computes here.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/random.hpp"
#include "base/status.hpp"
#include "cluster/rectangles/rectangle_table.hpp"
#include "scheduling/profile_grid.hpp"
#include "sim/experiments/fast_setup.hpp"

namespace troupe::sim {

namespace {

constexpr std::uint32_t kMostGpus = 64;
constexpr const char* kKind = "v100";
constexpr Bytes kGpuMemory = GiB(16);  // a V100's, as in the paper
constexpr const char* kMix[] = {"ResNet", "RNNT", "BERT"};

struct PackingPreset {
  const char* name;
  const char* policy;  // cluster/rectangles/packing_policy.hpp
};
constexpr PackingPreset kPackingPresets[] = {{"time-sharing", "time-sharing"},
                                             {"time-sharing-replan", "time-sharing-replan"},
                                             {"fast", "best-area-fit"},
                                             {"troupe", "replan"}};

absl::StatusOr<cluster::RectangleTable> TableOf(const PackingPreset& preset) {
  TROUPE_ASSIGN_OR_RETURN(const auto policy, cluster::FindPackingPolicy(preset.policy));
  cluster::RectangleTable table(policy);
  for (std::uint32_t gpu = 0; gpu < kMostGpus; ++gpu)
    TROUPE_RETURN_IF_ERROR(table.AddGpu({.name = absl::StrCat("gpu-", 100 + gpu),
                                         .node = absl::StrCat("node-", gpu),
                                         .kind = kKind,
                                         .memory = kGpuMemory}));
  return table;
}

cluster::InstanceRequest InstanceOf(cluster::InstanceId id, const std::string& function,
                                    cluster::Extent extent) {
  return {.id = id, .function = function, .by_kind = {{kKind, {.extent = extent}}}};
}

struct Packed {
  double orders = 0, on_one_gpu = 0;
  double gpus = 0, least = kMostGpus, most = 0;  // of an order; `gpus` is the sum
  double moves = 0, most_moves = 0;
};

// Each order of the mix, on GPUs that are empty at its begin.
absl::StatusOr<Packed> PackEveryOrder(const PackingPreset& preset, const FastTable& fast) {
  std::vector<std::uint32_t> order;  // indices of kMix
  std::vector<cluster::Extent> extents;
  for (std::uint32_t model = 0; model < std::size(kMix); ++model) {
    TROUPE_ASSIGN_OR_RETURN(const FastTable::Pods pods, fast.PodsToPack(kMix[model]));
    order.insert(order.end(), pods.count, model);
    extents.push_back({.quota = pods.quota_percent, .sms = pods.sm_percent});
  }
  Packed packed;
  do {
    TROUPE_ASSIGN_OR_RETURN(auto table, TableOf(preset));
    double moves = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
      TROUPE_ASSIGN_OR_RETURN(const auto placed,
                              table.Place(InstanceOf(i, kMix[order[i]], extents[order[i]])));
      moves += static_cast<double>(placed.moves.size());
    }
    const auto gpus = static_cast<double>(table.InUse());
    packed.orders += 1;
    packed.on_one_gpu += gpus == 1 ? 1 : 0;
    packed.gpus += gpus;
    packed.least = std::min(packed.least, gpus);
    packed.most = std::max(packed.most, gpus);
    packed.moves += moves;
    packed.most_moves = std::max(packed.most_moves, moves);
  } while (std::ranges::next_permutation(order).found);
  return packed;
}

// Three of five events bring an instance while fewer than 40 are there, the others take one away. Every preset meets the
// same events.
absl::StatusOr<Summary> PackAtRandom(const PackingPreset& preset, std::uint64_t seed) {
  constexpr int kEvents = 400, kMostInstances = 40;
  TROUPE_ASSIGN_OR_RETURN(auto table, TableOf(preset));
  Random random(seed);
  std::vector<std::pair<cluster::InstanceId, cluster::Extent>> here;
  double gpus = 0, asked = 0, moves = 0, placed = 0;
  for (int event = 1; event <= kEvents; ++event) {
    const bool comes = here.empty() || (here.size() < kMostInstances && random.Below(5) < 3);
    if (comes) {
      const cluster::Extent extent{.quota = kGridQuotas[random.Below(kGridQuotas.size())],
                                   .sms = kGridShares[random.Below(kGridShares.size())]};
      const auto id = static_cast<cluster::InstanceId>(event);
      TROUPE_ASSIGN_OR_RETURN(const auto place, table.Place(InstanceOf(id, "f", extent)));
      here.emplace_back(id, extent);
      moves += static_cast<double>(place.moves.size());
      placed += 1;
    } else {
      const auto gone = here.begin() + static_cast<std::ptrdiff_t>(random.Below(here.size()));
      TROUPE_RETURN_IF_ERROR(table.Release(gone->first));
      here.erase(gone);
    }
    moves += static_cast<double>(table.Replan().size());
    gpus += static_cast<double>(table.InUse());
    for (const auto& [id, extent] : here) asked += extent.area() / (100.0 * 100.0);
  }
  return Summary{
      {"gpus", gpus / kEvents}, {"utilisation", asked / gpus}, {"moves_per_instance", moves / placed}};
}

}  // namespace

absl::StatusOr<std::vector<Figure>> FastPacking(const ExperimentOptions& options) {
  TROUPE_ASSIGN_OR_RETURN(const auto table, FastTable::Read(options.data));
  TROUPE_ASSIGN_OR_RETURN(const double paper_gpus, table.Value("GPUs needed FaST-Scheduler", "mix", "gpus"));
  TROUPE_ASSIGN_OR_RETURN(const double paper_shared, table.Value("GPUs needed time sharing", "mix", "gpus"));
  std::vector<std::string> names;
  for (const PackingPreset& preset : kPackingPresets) names.emplace_back(preset.name);
  const auto wanted = SharingPresets(options, names);

  std::vector<Figure> figures;
  Sweep sweep{.experiment = "fast-packing",
              .cases = {},
              .quantities = {{"gpus", ""},
                             {"gpus_least", ""},
                             {"gpus_most", ""},
                             {"moves", ""},
                             {"moves_most", ""},
                             {"utilisation", ""},
                             {"moves_per_instance", ""}},
              .summarize = nullptr,
              .paper = {{"mix/fast/gpus_least", paper_gpus},
                        {"mix/troupe/gpus", paper_gpus},
                        {"mix/time-sharing/gpus_least", paper_shared},
                        {"mix/time-sharing-replan/gpus", paper_shared}}};
  std::vector<FastCase> cases;
  for (const PackingPreset& preset : kPackingPresets) {
    if (std::ranges::find(wanted, preset.name) == wanted.end()) continue;
    TROUPE_ASSIGN_OR_RETURN(const Packed packed, PackEveryOrder(preset, table));
    figures.push_back({.name = absl::StrCat("fast-packing/orders_on_one_gpu/", preset.name),
                       .unit = absl::StrCat("of ", packed.orders),
                       .values = {packed.on_one_gpu}});
    const Summary summary = {{"gpus", packed.gpus / packed.orders},
                             {"gpus_least", packed.least},
                             {"gpus_most", packed.most},
                             {"moves", packed.moves / packed.orders},
                             {"moves_most", packed.most_moves}};
    const auto baseline = [&](const char* part) {
      return &preset == kPackingPresets ? "" : absl::StrCat(part, "/", kPackingPresets[0].name);
    };
    cases.push_back({.key = absl::StrCat("mix/", preset.name),
                     .baseline = baseline("mix"),
                     .run = [summary](std::uint64_t) { return summary; }});
    cases.push_back({.key = absl::StrCat("random/", preset.name),
                     .baseline = baseline("random"),
                     .run = [&preset](std::uint64_t seed) { return PackAtRandom(preset, seed); }});
  }
  TROUPE_ASSIGN_OR_RETURN(const auto rest, RunFast(std::move(sweep), cases, options));
  figures.insert(figures.end(), rest.begin(), rest.end());
  return figures;
}

}  // namespace troupe::sim
