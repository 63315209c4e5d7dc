// FaST-GShare's model sharing (001, 5.5): what instances take of a GPU's memory, with and without one copy of the
// weights for all: by arithmetic on the paper's footprints, and by the node's table of GPUs for the same sizes.
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "node/scheduling/gpu_table.hpp"
#include "sim/experiments/fast_setup.hpp"

namespace troupe::sim {

namespace {

constexpr double kGpuMb = 16 * 1024;  // a V100's
// The paper prints no footprint of ResNeXt. Of the four published sizes of ResNeXt-101 32x (88, 193, 466 and 829
// million parameters) only this one comes to its numbers of instances.
constexpr double kResNeXtParameters = 466e6;

// Of one model, in MB.
struct Footprint {
  double unshared = 0;  // a pod with a copy of its own
  double shared = 0;    // a pod beside the storage process
  double store = 0;     // the storage process, with the one copy
  double context = 0;   // of it: what the process takes itself
  [[nodiscard]] double weights() const { return store - context; }
};

absl::StatusOr<Footprint> FootprintOf(const FastTable& table, const char* model) {
  Footprint footprint;
  TROUPE_ASSIGN_OR_RETURN(footprint.unshared, table.Value("footprint no sharing", model, "MB"));
  auto shared = table.Value("footprint with sharing", model, "MB");
  if (!shared.ok()) shared = table.Value("footprint with sharing per pod", model, "MB");
  TROUPE_ASSIGN_OR_RETURN(footprint.shared, std::move(shared));
  TROUPE_ASSIGN_OR_RETURN(footprint.context, table.Value("fixed storage context", "all", "MB"));
  const auto store = table.Value("storage process + one model copy", model, "MB");
  footprint.store = store.ok() ? *store : footprint.context + footprint.unshared - footprint.shared;
  return footprint;
}

// From its weights: what a pod takes beside them grows with them, as from the one model to the other.
Footprint Interpolated(double weights, const Footprint& small, const Footprint& large) {
  const auto of = [](const Footprint& model) { return model.unshared - model.shared; };
  const double shared =
      std::lerp(small.shared, large.shared, (weights - of(small)) / (of(large) - of(small)));
  return {.unshared = shared + weights,
          .shared = shared,
          .store = small.context + weights,
          .context = small.context};
}

// A GPU of 16 GB as the node that decides about it has it: one worker with one context, `weights` once for each
// model, and a claim for each run.
class NodesGpu {
 public:
  explicit NodesGpu(const Footprint& footprint)
      : weights_(InBytes(footprint.weights())), run_(InBytes(footprint.shared - footprint.context)) {
    const Bytes memory = InBytes(kGpuMb);
    gpus_.Add(0, memory, 0, true);
    node::WorkerReady ready;
    ready.memory = memory;
    ready.free = memory - InBytes(footprint.context);
    gpus_.WorkerUp(ready, {}, Time());
  }

  // A copy of the weights for a new model; false: there is no room.
  [[nodiscard]] bool AddModel() {
    if (gpus_.at(0).Free() < weights_) return false;
    gpus_.BeginLoad(0, models_, weights_, node::kNoGpu, Duration(), Time());
    gpus_.EndLoad(0, models_, true, weights_, Time());
    ++models_;
    return true;
  }
  // A run of the latest model that computes beside the others.
  [[nodiscard]] bool AddRun() {
    if (gpus_.at(0).Free() < run_) return false;
    gpus_.Pin(0, models_ - 1, {.activation = run_}, Time());
    return true;
  }
  [[nodiscard]] double UsedMb() const {
    const node::Gpu& gpu = gpus_.at(0);
    return static_cast<double>((gpu.memory - gpu.Free()).count()) / static_cast<double>(MiB(1).count());
  }

 private:
  static Bytes InBytes(double mb) {
    return Bytes(static_cast<std::uint64_t>(mb * static_cast<double>(MiB(1).count())));
  }
  const Bytes weights_, run_;
  node::GpuTable gpus_;
  node::ModelId models_ = 0;
};

double MostInstances(const Footprint& footprint) {
  NodesGpu gpu(footprint);
  double count = 0;
  if (!gpu.AddModel()) return count;
  while (gpu.AddRun()) ++count;
  return count;
}

// As many models of this size, each with one run.
double MostModels(const Footprint& footprint) {
  NodesGpu gpu(footprint);
  double count = 0;
  while (gpu.AddModel() && gpu.AddRun()) ++count;
  return count;
}

// Nothing when they do not fit.
Summary UsedBy(std::uint32_t instances, const Footprint& footprint) {
  NodesGpu gpu(footprint);
  bool fits = gpu.AddModel();
  for (std::uint32_t i = 0; i < instances; ++i) fits = fits && gpu.AddRun();
  return fits ? Summary{{"mb", gpu.UsedMb()}} : Summary();
}

}  // namespace

absl::StatusOr<std::vector<Figure>> FastMemory(const ExperimentOptions& options) {
  TROUPE_ASSIGN_OR_RETURN(const auto table, FastTable::Read(options.data));
  TROUPE_ASSIGN_OR_RETURN(const auto resnet, FootprintOf(table, "ResNet"));
  TROUPE_ASSIGN_OR_RETURN(const auto vit, FootprintOf(table, "ViT_huge"));
  TROUPE_ASSIGN_OR_RETURN(const double three_shared, table.Value("3 pods with sharing", "ViT_huge", "MB"));
  TROUPE_ASSIGN_OR_RETURN(const double three, table.Value("3 pods without sharing", "ViT_huge", "MB"));
  TROUPE_ASSIGN_OR_RETURN(const double most_shared,
                          table.Value("pods on a 16 GB V100 with sharing", "ResNeXt", "pods"));
  TROUPE_ASSIGN_OR_RETURN(const double most,
                          table.Value("pods on a 16 GB V100 without sharing", "ResNeXt", "pods"));
  const auto resnext =
      Interpolated(kResNeXtParameters * 4 / static_cast<double>(MiB(1).count()), resnet, vit);
  const Sweep sweep{.experiment = "fast-memory",
                    .cases = {},
                    .quantities = {{"mb", "MB"}, {"instances", ""}},
                    .summarize = nullptr,
                    .paper = {{"ViT_huge/3/no-sharing/mb", three},
                              {"ViT_huge/3/sharing/mb", three_shared},
                              {"16GB/ResNeXt/no-sharing/instances", most},
                              {"16GB/ResNeXt/sharing/instances", most_shared}}};
  std::vector<FastCase> cases;
  const auto add = [&](const std::string& key, const char* series, const Summary& summary) {
    cases.push_back({.key = absl::StrCat(key, "/", series),
                     .baseline = std::string_view(series) == "no-sharing" ? "" : key + "/no-sharing",
                     .run = [summary](std::uint64_t) { return summary; }});
  };
  const std::pair<const char*, Footprint> models[] = {
      {"ResNet", resnet}, {"ResNeXt", resnext}, {"ViT_huge", vit}};
  for (const auto& [name, footprint] : models) {
    for (const std::uint32_t instances : {1, 2, 3}) {
      const std::string key = absl::StrCat(name, "/", instances);
      add(key, "no-sharing", {{"mb", instances * footprint.unshared}});
      add(key, "sharing", {{"mb", footprint.store + instances * footprint.shared}});
      add(key, "troupe", UsedBy(instances, footprint));
    }
    const std::string key = absl::StrCat("16GB/", name);
    add(key, "no-sharing", {{"instances", std::floor(kGpuMb / footprint.unshared)}});
    add(key, "sharing", {{"instances", std::floor((kGpuMb - footprint.store) / footprint.shared)}});
    add(key, "troupe", {{"instances", MostInstances(footprint)}});
    add(key, "troupe-models", {{"instances", MostModels(footprint)}});
  }
  ExperimentOptions once = options;
  once.seeds = 1;
  return RunFast(sweep, cases, once);
}

}  // namespace troupe::sim
