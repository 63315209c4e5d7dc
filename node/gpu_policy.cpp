#include "node/gpu_policy.hpp"

#include <algorithm>
#include <array>
#include <tuple>

namespace troupe::node {

namespace {

bool Usable(const GpuOption& option) {
  return option.has_slot && option.fits;
}

// A load overlaps with what runs.
Duration LoadEnd(const GpuOption& option) {
  return std::max(option.backlog, option.load);
}

// True when `a` is the better GPU to load a model on.
bool BetterLoader(const GpuOption& a, const GpuOption& b) {
  return std::tuple(a.in_flight, b.free, a.gpu) < std::tuple(b.in_flight, a.free, b.gpu);
}

GpuChoice ResidentFirst(std::span<const GpuOption> options) {
  const GpuOption* holder = nullptr;  // that can run now
  const GpuOption* busy = nullptr;    // holder that cannot take it yet
  const GpuOption* loader = nullptr;
  for (const GpuOption& option : options) {
    if (option.has_model) {
      const GpuOption*& best = Usable(option) ? holder : busy;
      if (best == nullptr || option.backlog < best->backlog) best = &option;
    } else if (Usable(option) && (loader == nullptr || BetterLoader(option, *loader))) {
      loader = &option;
    }
  }
  if (holder != nullptr &&
      (holder->in_flight == 0 || loader == nullptr || holder->backlog <= LoadEnd(*loader))) {
    return {GpuVerdict::kRun, holder->gpu};
  }
  if (busy != nullptr && (loader == nullptr || busy->backlog <= LoadEnd(*loader))) {
    return {GpuVerdict::kWait, busy->gpu};
  }
  if (loader != nullptr) return {GpuVerdict::kRun, loader->gpu};
  return {};
}

GpuChoice MostFree(std::span<const GpuOption> options) {
  const GpuOption* best = nullptr;
  const auto key = [](const GpuOption& option) {
    return std::tuple(option.in_flight, !option.has_model, option.gpu);
  };
  for (const GpuOption& option : options) {
    if (!Usable(option)) continue;
    if (best == nullptr || option.in_flight < best->in_flight ||
        (option.in_flight == best->in_flight &&
         (option.free > best->free || (option.free == best->free && key(option) < key(*best))))) {
      best = &option;
    }
  }
  return best == nullptr ? GpuChoice{} : GpuChoice{GpuVerdict::kRun, best->gpu};
}

}  // namespace

std::span<const PolicyEntry<GpuPolicy>> GpuPolicies() {
  static constexpr std::array<PolicyEntry<GpuPolicy>, 2> kTable = {{
      {"resident-first", "the GPU that ends the request first; a resident model before a load",
       &ResidentFirst},
      {"most-free", "the least busy GPU, then the one with the most free memory", &MostFree},
  }};
  return kTable;
}

absl::StatusOr<GpuPolicy> FindGpuPolicy(std::string_view name) {
  return FindPolicy<GpuPolicy>("gpu", name, GpuPolicies());
}

}  // namespace troupe::node
