#include "sim/schedules/drawn_world.hpp"

#include <array>

namespace troupe::sim {

namespace {

ClusterShape DrawSizes(Random& random) {
  ClusterShape shape;
  shape.nodes = 1 + static_cast<std::uint32_t>(random.Below(3));
  shape.gpus = 1 + static_cast<std::uint32_t>(random.Below(2));
  shape.gateways = 1 + static_cast<std::uint32_t>(random.Below(3));
  return shape;
}

// In every other world nodes join requests, and in every other one what follows a load owns whatever that costs. Drawn by itself, so
// that all else of a seed's schedule is drawn as without it.
ClusterShape WithPolicies(ClusterShape shape, std::uint64_t seed) {
  if (Random(seed ^ 0xba7c4ULL).Below(2) == 0) shape.batching = "slack";
  if (Random(seed ^ 0x0415ULL).Below(2) == 0) shape.owning = "always";
  return shape;
}

// In every other world the GPUs of a node have links to each other. Drawn by itself, too.
ClusterShape WithLinks(ClusterShape shape, std::uint64_t seed) {
  shape.linked = Random(seed ^ 0x117cULL).Below(2) == 0;
  return shape;
}

// In every other world of several nodes states have copies, of three nodes on one or on both of the others. Drawn by itself, too.
ClusterShape WithCopies(ClusterShape shape, std::uint64_t seed) {
  Random random(seed ^ 0xc0b1e5ULL);
  if (shape.nodes > 1 && random.Below(2) == 0)
    shape.copies = 1 + static_cast<std::uint32_t>(random.Below(shape.nodes - 1));
  return shape;
}

// In one world of four gateways name the GPU of each request. Drawn by itself, too.
ClusterShape WithNamedGpus(ClusterShape shape, std::uint64_t seed) {
  constexpr std::array<const char*, 3> kPresets = {"load-balance", "lalb", "lalb-o3"};
  Random random(seed ^ 0x1a1bULL);
  if (random.Below(4) == 0) shape.preset = kPresets[random.Below(kPresets.size())];
  return shape;
}

// In one world of four each GPU has two runtimes, each of which serves one function alone. Gateways that name GPUs know one
// runtime on each. Drawn by itself, too.
ClusterShape WithRuntimes(ClusterShape shape, std::uint64_t seed) {
  if (Random(seed ^ 0x150a7eULL).Below(4) == 0 && shape.preset == ClusterShape().preset) shape.runtimes = 2;
  return shape;
}

// In one world of four without copies, states are written back when their model leaves: what has a worker's memory alone goes with
// it. Drawn by itself, too.
ClusterShape WithWriteBack(ClusterShape shape, std::uint64_t seed) {
  shape.by_eviction = shape.copies == 0 && Random(seed ^ 0xe71c7ULL).Below(4) == 0;
  return shape;
}

}  // namespace

ClusterShape DrawShape(Random& random, std::uint64_t seed) {
  const auto shape = WithNamedGpus(WithPolicies(DrawSizes(random), seed), seed);
  return WithWriteBack(WithCopies(WithRuntimes(WithLinks(shape, seed), seed), seed), seed);
}

WorkloadPlan DrawPlan(Random& random, std::uint64_t seed) {
  auto plan = WithConditions(DrawWorkload(random), seed);
  plan = WithLongRuns(WithSiblings(plan, seed), seed);
  plan = WithSequences(WithUpdates(WithQuota(plan, seed), seed), seed);
  return WithStages(WithRedeployments(WithCanaries(plan, seed), seed), seed);
}

}  // namespace troupe::sim
