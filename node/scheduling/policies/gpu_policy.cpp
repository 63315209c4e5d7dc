#include "node/scheduling/policies/gpu_policy.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <vector>

#include "base/status.hpp"

namespace troupe::node {

namespace {

bool Usable(const GpuOption& option) {
  return option.has_slot && option.fits;
}

// Until the request's run has ended, less its run on the fastest kind.
Duration RunEnd(const GpuOption& option) {
  return option.backlog + option.slower;
}

// The same where the model has to come: a load overlaps with what runs.
Duration LoadEnd(const GpuOption& option) {
  return std::max(option.backlog, option.load) + option.slower;
}

bool IsLateOn(const GpuView& view, const GpuOption& option) {
  return RunEnd(option) > view.spare;
}

// Whether GPUs are left out on which a run alone would make the request late: only while it is not late on each.
bool SomeAreTooSlow(const GpuView& view) {
  if (view.spare == Duration::max() || view.spare < Duration()) return false;
  return std::ranges::any_of(view.options, [&](const GpuOption& o) { return o.slower <= view.spare; });
}

// How long a request had better wait for a GPU that has its model. Where a load occupies its GPU it is for
// more than this request: a copy beside the others serves those to come, one in their place costs them
// theirs.
Duration WorthWaiting(const GpuView& view, const GpuOption& loader) {
  constexpr std::int64_t kBesides = 60, kInstead = 110;  // percent
  if (!view.loads_occupy) return LoadEnd(loader);
  return (loader.backlog + loader.load) * (loader.evicts ? kInstead : kBesides) / 100 + loader.slower;
}

// True when `a` is the better GPU to load a model on.
bool BetterLoader(const GpuOption& a, const GpuOption& b) {
  return std::tuple(a.in_flight, a.slower, b.free, a.gpu) < std::tuple(b.in_flight, b.slower, a.free, b.gpu);
}

// An idle GPU with memory to spare, if there were one.
GpuOption IdealLoader(const GpuView& view) {
  return {.load = view.load};
}

GpuChoice ResidentFirst(const GpuView& view) {
  const GpuOption* holder = nullptr;  // that can run now
  const GpuOption* busy = nullptr;    // holder that cannot take it yet
  const GpuOption* loader = nullptr;
  const bool some_too_slow = SomeAreTooSlow(view);
  for (const GpuOption& option : view.options) {
    if (some_too_slow && option.slower > view.spare) continue;
    if (option.has_model) {
      const GpuOption*& best = Usable(option) ? holder : busy;
      if (best == nullptr || RunEnd(option) < RunEnd(*best)) best = &option;
    } else if (Usable(option) && (loader == nullptr || BetterLoader(option, *loader))) {
      loader = &option;
    }
  }
  if (holder != nullptr &&
      (holder->in_flight < view.concurrency || loader == nullptr || RunEnd(*holder) <= LoadEnd(*loader))) {
    return {GpuVerdict::kRun, holder->gpu};
  }
  // Its requests wait for one another, too: a model that many wait for is worth a second copy.
  if (busy != nullptr && (loader == nullptr || RunEnd(*busy) + view.queued <= WorthWaiting(view, *loader))) {
    const bool firm = RunEnd(*busy) + view.queued <= WorthWaiting(view, IdealLoader(view));
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
  const Bringing host{.cost = std::max(option.backlog, load) + others + again + option.slower};
  if (option.peer == kNoGpu) return host;
  const Bringing peer{
      .cost = std::max(option.backlog, option.before + option.peer_load) + again + option.slower,
      .from_peer = true};
  return peer.cost < host.cost ? peer : host;
}

// The slowest GPU on which the request is in time, by a margin, or is late as anywhere; kBlocked: the request
// needs a fast one, or no request does.
GpuChoice LeaveFastGpus(const GpuView& view, double price) {
  constexpr double kWanted = 0.01;
  if (view.fast_wanted < kWanted || view.spare == Duration::max()) return {};
  const Duration margin = view.spare * 3 / 4;
  const GpuOption* best = nullptr;
  Bringing bringing;
  for (const GpuOption& option : view.options) {
    if (!Usable(option) || option.slower == Duration()) continue;
    const Bringing here = option.has_model ? Bringing{.cost = RunEnd(option)} : CostOfBringing(price, option);
    if (view.spare >= Duration() && here.cost > margin) continue;
    if (best == nullptr || std::tuple(option.slower, option.has_model, bringing.cost) >
                               std::tuple(best->slower, best->has_model, here.cost)) {
      best = &option;
      bringing = here;
    }
  }
  if (best == nullptr) return {};
  return {GpuVerdict::kRun, best->gpu, bringing.from_peer ? best->peer : kNoGpu};
}

GpuChoice LeastCost(const GpuView& view) {
  if (view.loads_occupy) return ResidentFirst(view);
  const GpuOption* holder = nullptr;  // that can run now
  const GpuOption* busy = nullptr;    // holder that cannot take it yet
  const GpuOption* loader = nullptr;
  Bringing bringing;
  const double price = PriceOfLink(view.link_pressure);
  if (const GpuChoice slow = LeaveFastGpus(view, price); slow.verdict == GpuVerdict::kRun) return slow;
  const bool some_too_slow = SomeAreTooSlow(view);
  for (const GpuOption& option : view.options) {
    if (some_too_slow && option.slower > view.spare) continue;
    if (option.has_model) {
      const GpuOption*& best = Usable(option) ? holder : busy;
      if (best == nullptr || RunEnd(option) < RunEnd(*best)) best = &option;
    } else if (Usable(option)) {
      const Bringing here = CostOfBringing(price, option);
      if (loader == nullptr || std::tuple(here.cost, option.in_flight, loader->free) <
                                   std::tuple(bringing.cost, loader->in_flight, option.free)) {
        loader = &option;
        bringing = here;
      }
    }
  }
  // A slow GPU is not taken by a request that would be late there and in time on a fast one that is busy.
  const bool waits =
      holder != nullptr && busy != nullptr && IsLateOn(view, *holder) && !IsLateOn(view, *busy);
  if (holder == nullptr || waits) holder = busy;
  if (holder != nullptr && (loader == nullptr || RunEnd(*holder) + view.queued <= bringing.cost)) {
    if (Usable(*holder)) return {GpuVerdict::kRun, holder->gpu};
    const Duration others = FromSeconds(ToSeconds(view.load) * price);
    const bool firm = !view.peer_links && RunEnd(*holder) + view.queued <= view.load + others;
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
    if (option.has_model && (holder == nullptr || RunEnd(option) < RunEnd(*holder))) holder = &option;
  }
  if (holder != nullptr && (loader == nullptr || RunEnd(*holder) <= LoadEnd(*loader))) {
    const bool firm = !view.peer_links && RunEnd(*holder) <= LoadEnd(IdealLoader(view));
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
  static constexpr std::array<PolicyEntry<GpuPolicy>, 11> kTable = {{
      {"resident-first",
       "the GPU that ends the request first; a resident model before a load",
       {.choose = &ResidentFirst, .hits_first = true}},
      {"least-cost",
       "the GPU where it costs this request and those behind it least",
       {.choose = &LeastCost, .hits_first = true, .places_for_hits = true}},
      {"least-cost-kind-blind",
       "least-cost where all GPUs are taken to be alike",
       {.choose = &LeastCost, .hits_first = true, .places_for_hits = true, .kinds = KindRule::kBlind}},
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
  TROUPE_ASSIGN_OR_RETURN(const auto limit, NumberBehind("gpu", name, "lalb-o3="));
  if (!limit) return FindPolicy<GpuPolicy>("gpu", name, GpuPolicies());
  auto policy = *FindPolicy<GpuPolicy>("gpu", "lalb-o3", GpuPolicies());
  policy.locality->limit = *limit;
  return policy;
}

}  // namespace troupe::node
