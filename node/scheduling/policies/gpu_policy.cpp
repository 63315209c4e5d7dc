#include "node/scheduling/policies/gpu_policy.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"

namespace troupe::node {

namespace {

bool Usable(const GpuOption& option) {
  return option.has_slot && option.fits;
}

// A load overlaps with what runs.
Duration LoadEnd(const GpuOption& option) {
  return std::max(option.backlog, option.load);
}

// How long a request had better wait for a GPU that has its model. Where a load occupies its GPU it is for
// more than this request: a copy beside the others serves those to come, one in their place costs them
// theirs.
Duration WorthWaiting(const GpuView& view, const GpuOption& loader) {
  constexpr std::int64_t kBesides = 60, kInstead = 110;  // percent
  if (!view.loads_occupy) return LoadEnd(loader);
  return (loader.backlog + loader.load) * (loader.evicts ? kInstead : kBesides) / 100;
}

// True when `a` is the better GPU to load a model on.
bool BetterLoader(const GpuOption& a, const GpuOption& b) {
  return std::tuple(a.in_flight, b.free, a.gpu) < std::tuple(b.in_flight, a.free, b.gpu);
}

// An idle GPU with memory to spare, if there were one.
GpuOption IdealLoader(const GpuView& view) {
  return {.load = view.load};
}

GpuChoice ResidentFirst(const GpuView& view) {
  const GpuOption* holder = nullptr;  // that can run now
  const GpuOption* busy = nullptr;    // holder that cannot take it yet
  const GpuOption* loader = nullptr;
  for (const GpuOption& option : view.options) {
    if (option.has_model) {
      const GpuOption*& best = Usable(option) ? holder : busy;
      if (best == nullptr || option.backlog < best->backlog) best = &option;
    } else if (Usable(option) && (loader == nullptr || BetterLoader(option, *loader))) {
      loader = &option;
    }
  }
  if (holder != nullptr &&
      (holder->in_flight < view.concurrency || loader == nullptr || holder->backlog <= LoadEnd(*loader))) {
    return {GpuVerdict::kRun, holder->gpu};
  }
  // Its requests wait for one another, too: a model that many wait for is worth a second copy.
  if (busy != nullptr && (loader == nullptr || busy->backlog + view.queued <= WorthWaiting(view, *loader))) {
    const bool firm = busy->backlog + view.queued <= WorthWaiting(view, IdealLoader(view));
    return {.verdict = GpuVerdict::kWait, .gpu = busy->gpu, .firm = firm};
  }
  if (loader != nullptr) return {GpuVerdict::kRun, loader->gpu};
  return {};
}

// What those behind a load wait for it, for each second of it, when links are busy for this share of the
// time: the mean number in an M/M/1 system.
double PriceOfLink(double pressure) {
  constexpr double kMost = 20;
  return pressure >= 1 ? kMost : std::min(kMost, pressure / (1 - pressure));
}

struct Bringing {
  Duration cost{};  // until it is there and the GPU free, and what others pay
  bool from_peer = false;
};

Bringing CostOfBringing(double price, const GpuOption& option) {
  const Duration others = FromSeconds(ToSeconds(option.load) * price);
  const Duration again = option.evicts ? others : Duration();
  // A GPU's own loads come one after the other. Of the loads beside them, in the order of their deadlines,
  // half come first, if they take as long.
  const Duration load = option.before + option.load + std::min(option.beside, option.load) / 2;
  const Bringing host{.cost = std::max(option.backlog, load) + others + again};
  if (option.peer == kNoGpu) return host;
  const Bringing peer{.cost = std::max(option.backlog, option.before + option.peer_load) + again,
                      .from_peer = true};
  return peer.cost < host.cost ? peer : host;
}

GpuChoice LeastCost(const GpuView& view) {
  if (view.loads_occupy) return ResidentFirst(view);
  const GpuOption* holder = nullptr;
  const GpuOption* loader = nullptr;
  Bringing bringing;
  const double price = PriceOfLink(view.link_pressure);
  for (const GpuOption& option : view.options) {
    if (option.has_model) {
      if (holder == nullptr ||
          std::tuple(!Usable(option), option.backlog) < std::tuple(!Usable(*holder), holder->backlog))
        holder = &option;
    } else if (Usable(option)) {
      const Bringing here = CostOfBringing(price, option);
      if (loader == nullptr || std::tuple(here.cost, option.in_flight, loader->free) <
                                   std::tuple(bringing.cost, loader->in_flight, option.free)) {
        loader = &option;
        bringing = here;
      }
    }
  }
  if (holder != nullptr && (loader == nullptr || holder->backlog + view.queued <= bringing.cost)) {
    if (Usable(*holder)) return {GpuVerdict::kRun, holder->gpu};
    const Duration others = FromSeconds(ToSeconds(view.load) * price);
    const bool firm = !view.peer_links && holder->backlog + view.queued <= view.load + others;
    return {.verdict = GpuVerdict::kWait, .gpu = holder->gpu, .firm = firm};
  }
  if (loader == nullptr) return {};
  return {GpuVerdict::kRun, loader->gpu, bringing.from_peer ? loader->peer : kNoGpu};
}

GpuChoice MostFree(const GpuView& view) {
  const GpuOption* best = nullptr;
  const auto key = [](const GpuOption& option) {
    return std::tuple(option.in_flight, !option.has_model, option.gpu);
  };
  for (const GpuOption& option : view.options) {
    if (!Usable(option)) continue;
    if (best == nullptr || option.in_flight < best->in_flight ||
        (option.in_flight == best->in_flight &&
         (option.free > best->free || (option.free == best->free && key(option) < key(*best))))) {
      best = &option;
    }
  }
  return best == nullptr ? GpuChoice{} : GpuChoice{GpuVerdict::kRun, best->gpu};
}

// Torpor's set A: the GPUs that could begin at once; without one, the GPUs that swap ahead.
std::vector<const GpuOption*> Available(const GpuView& view) {
  std::vector<const GpuOption*> idle;
  std::vector<const GpuOption*> ahead;
  for (const GpuOption& option : view.options) {
    if (Usable(option)) (option.in_flight < view.concurrency ? idle : ahead).push_back(&option);
  }
  return idle.empty() ? ahead : idle;
}

// The first of the options whose `key` is not empty and the smallest; null when all are empty.
template <class Key>
const GpuOption* Best(const std::vector<const GpuOption*>& options, Key key) {
  const GpuOption* best = nullptr;
  for (const GpuOption* option : options) {
    if (key(*option) && (best == nullptr || *key(*option) < *key(*best))) best = option;
  }
  return best;
}

const GpuOption* BestHit(const std::vector<const GpuOption*>& options) {
  return Best(options, [](const GpuOption& o) {
    return o.has_model ? std::optional(std::tuple(o.in_flight, o.backlog)) : std::nullopt;
  });
}

// A model that only GPUs without a slot, or without a link, have: wait for the one that is done first, if
// that is sooner than `loader`.
GpuChoice WaitOrLoad(const GpuView& view, const GpuOption* loader) {
  const GpuOption* holder = nullptr;
  for (const GpuOption& option : view.options) {
    if (option.has_model && (holder == nullptr || option.backlog < holder->backlog)) holder = &option;
  }
  if (holder != nullptr && (loader == nullptr || holder->backlog <= LoadEnd(*loader))) {
    const bool firm = !view.peer_links && holder->backlog <= LoadEnd(IdealLoader(view));
    return {
        .verdict = Usable(*holder) ? GpuVerdict::kRun : GpuVerdict::kWait, .gpu = holder->gpu, .firm = firm};
  }
  if (loader == nullptr) return {};
  return {GpuVerdict::kRun, loader->gpu};
}

GpuChoice InterferenceAware(const GpuView& view) {
  const std::vector<const GpuOption*> available = Available(view);
  if (const GpuOption* hit = BestHit(available)) return {GpuVerdict::kRun, hit->gpu};
  const GpuOption* pair = Best(available, [](const GpuOption& o) {
    return o.peer != kNoGpu ? std::optional(std::tuple(o.peer_load, o.victim, o.in_flight)) : std::nullopt;
  });
  if (pair != nullptr) return {GpuVerdict::kRun, pair->gpu, pair->peer};
  const GpuOption* loader = Best(available, [](const GpuOption& o) {
    const std::uint64_t taken = ~o.free.count();  // most free memory first
    return o.has_model ? std::nullopt
                       : std::optional(std::tuple(o.switch_load, o.victim, o.in_flight, taken));
  });
  return WaitOrLoad(view, loader);
}

GpuChoice RandomIdle(const GpuView& view) {
  const std::vector<const GpuOption*> available = Available(view);
  if (available.empty()) return {};
  if (const GpuOption* hit = BestHit(available)) return {GpuVerdict::kRun, hit->gpu};
  return {GpuVerdict::kRun, available[view.draw % available.size()]->gpu};
}

GpuChoice FirstIdle(const GpuView& view) {
  for (const GpuOption& option : view.options) {
    if (Usable(option) && option.in_flight < view.concurrency) return {GpuVerdict::kRun, option.gpu};
  }
  return {};
}

GpuChoice Bound(const GpuView& view) {
  for (const GpuOption& option : view.options) {
    if (option.gpu != view.home) continue;
    if (Usable(option)) return {GpuVerdict::kRun, option.gpu};
    if (option.has_model) return {.verdict = GpuVerdict::kWait, .gpu = option.gpu, .firm = true};
  }
  return {};
}

}  // namespace

std::span<const PolicyEntry<GpuPolicy>> GpuPolicies() {
  static constexpr std::array<PolicyEntry<GpuPolicy>, 10> kTable = {{
      {"resident-first",
       "the GPU that ends the request first; a resident model before a load",
       {.choose = &ResidentFirst, .hits_first = true}},
      {"least-cost",
       "the GPU where it costs this request and those behind it least",
       {.choose = &LeastCost, .hits_first = true, .places_for_hits = true}},
      {"most-free", "the least busy GPU, then the one with the most free memory", {&MostFree}},
      {"interference-aware",
       "a GPU that has the model, else the fastest peer link, else the least used switch",
       {.choose = &InterferenceAware, .weighs_victims = true}},
      {"random", "a GPU that has the model, else an idle one by lot", {&RandomIdle}},
      {"bound", "early binding: each model has one GPU", {&Bound, true}},
      {"first-idle", "whichever GPU is idle", {&FirstIdle, false, GpuQueues::kNone}},
      {"lalb",
       "an idle GPU takes the first request whose model it has (003)",
       {.choose = &ResidentFirst, .locality = LocalityRules{.limit = 0}}},
      {"lalb-o3",
       "lalb out of order: a request is passed at most 25 times",
       {.choose = &ResidentFirst, .locality = LocalityRules{}}},
      {"lalb-o3-printed",
       "lalb-o3 as printed, scanning the queue",
       {.choose = &ResidentFirst, .locality = LocalityRules{.printed = true}}},
  }};
  return kTable;
}

absl::StatusOr<GpuPolicy> FindGpuPolicy(std::string_view name) {
  constexpr std::string_view kLimit = "lalb-o3=";
  if (!name.starts_with(kLimit)) return FindPolicy<GpuPolicy>("gpu", name, GpuPolicies());
  auto policy = *FindPolicy<GpuPolicy>("gpu", "lalb-o3", GpuPolicies());
  const std::string_view limit = name.substr(kLimit.size());
  const auto [end, error] =
      std::from_chars(limit.data(), limit.data() + limit.size(), policy.locality->limit);
  if (limit.empty() || error != std::errc() || end != limit.data() + limit.size())
    return absl::InvalidArgumentError(
        absl::StrCat("the gpu policy '", std::string(name), "' needs a number, as in lalb-o3=25"));
  return policy;
}

}  // namespace troupe::node
