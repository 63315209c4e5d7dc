#include "base/policy.hpp"

#include <array>
#include <charconv>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace troupe {

absl::Status UnknownPolicy(std::string_view slot, std::string_view name,
                           const std::vector<std::string_view>& known) {
  return absl::NotFoundError(absl::StrCat(
      "no ", std::string(slot), " policy is called '", std::string(name), "'; choose one of: ",
      absl::StrJoin(known, ", ", [](std::string* out, std::string_view text) { out->append(text); })));
}

absl::StatusOr<std::optional<std::uint32_t>> NumberBehind(std::string_view slot, std::string_view name,
                                                          std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::optional<std::uint32_t>();
  const std::string_view digits = name.substr(prefix.size());
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size())
    return absl::InvalidArgumentError(absl::StrCat("the ", std::string(slot), " policy '", std::string(name),
                                                   "' needs a number, as in ", std::string(prefix), "25"));
  return std::optional(number);
}

namespace {

// What the systems of the papers have in common: a model comes for a request, to nodes that do not follow the load, and routers
// count requests.
PolicyNames Published() {
  PolicyNames names;
  names.routing = "locality-by-count";
  names.prefetch = "asked";
  names.replicas = "fixed";
  return names;
}

PolicyNames Torpor() {
  PolicyNames names = Published();
  names.ordering = "slo-aware";
  names.gpu = "interference-aware";
  names.eviction = "heaviness-aware";
  return names;
}

// Ours with another policy in one slot.
PolicyNames TroupeWith(std::string PolicyNames::*slot, const char* name) {
  PolicyNames names;
  names.*slot = name;
  return names;
}

PolicyNames KindBlind() {
  PolicyNames names;
  names.routing = "locality-kind-blind";
  names.gpu = "least-cost-kind-blind";
  return names;
}

// 003: one queue in the order of arrival, models by least recent use. The routers name the GPU of each request by the
// same policy by which a node chooses among its own GPUs.
PolicyNames Lalb(const char* policy) {
  PolicyNames names = Published();
  names.routing = policy;
  names.ordering = "fifo";
  names.gpu = policy;
  names.eviction = "lru-strict";
  return names;
}

// 001: functions own parts of GPUs as Algorithm 1 says, and models come for requests.
PolicyNames Fast() {
  PolicyNames names = Published();
  names.scaling = "fast-scaler";
  names.forecast = "last";
  names.owning = "always";
  return names;
}

// One of Torpor's ablations (002, 7.3): another policy in one slot.
PolicyNames TorporWith(std::string PolicyNames::*slot, const char* name) {
  PolicyNames names = Torpor();
  names.*slot = name;
  return names;
}

// Containers that stay on one GPU (002, 7.3 and 7.4).
PolicyNames Bound(const char* binding) {
  PolicyNames names = Published();
  names.ordering = "fifo";
  names.gpu = "bound";
  names.eviction = "lru";
  names.binding = binding;
  return names;
}

// 002, 7.4: models are swapped, and that is all.
PolicyNames SimpleSwap() {
  PolicyNames names = Published();
  names.routing = "load-balance";
  names.ordering = "fifo";
  names.gpu = "random";
  names.eviction = "lru";
  return names;
}

// 004: what StreamBox and its baselines have in common. A node takes a burst in parts, by its credits.
PolicyNames InOrder() {
  PolicyNames names;
  names.routing = "bounded-locality";
  names.ordering = "fifo";
  names.gpu = "resident-first";
  names.eviction = "lru";
  return names;
}

}  // namespace

std::span<const PolicyEntry<PolicyNames>> Presets() {
  static const std::array<PolicyEntry<PolicyNames>, 24> kPresets = {{
      {"troupe", "the earliest deadline first that can be met, where it ends first and costs others least",
       PolicyNames{}},
      {"troupe-edf", "troupe with the earliest deadline first, also when it can no longer be met",
       TroupeWith(&PolicyNames::ordering, "edf")},
      {"troupe-late-last", "troupe whose late requests yield, however many a function had before",
       TroupeWith(&PolicyNames::ordering, "edf-late-last")},
      {"troupe-kind-blind", "troupe where all GPUs are taken to be alike", KindBlind()},
      {"troupe-own-work", "troupe whose gateways do not know of each other's requests",
       TroupeWith(&PolicyNames::routing, "locality-own-work")},
      {"troupe-resident-first",
       "troupe whose gateways prefer a node with the model on a GPU, whatever waits there",
       TroupeWith(&PolicyNames::routing, "locality-resident-first")},
      {"troupe-by-count", "troupe whose routers count requests, however long each takes",
       TroupeWith(&PolicyNames::routing, "locality-by-count")},
      {"troupe-ahead", "troupe without forecasts of requests", TroupeWith(&PolicyNames::prefetch, "ahead")},
      {"troupe-asked", "troupe without prefetch", TroupeWith(&PolicyNames::prefetch, "asked")},
      {"troupe-late", "troupe where no load gives a function a part of a GPU: every request is bound late",
       TroupeWith(&PolicyNames::owning, "never")},
      {"fast", "FaST-GShare (001): functions whose quota_request is auto own parts of GPUs, by Algorithm 1",
       Fast()},
      {"load-balance", "in order of arrival, to whichever GPU becomes idle (the baseline of LALB, 003)",
       Lalb("first-idle")},
      {"lalb", "LALB (003): a request goes to a GPU that has its model, if that is sooner than a load",
       Lalb("lalb")},
      {"lalb-o3", "LALB (003) out of order: later requests may pass up to 25 times", Lalb("lalb-o3")},
      {"torpor",
       "Torpor (002): functions by their SLO, copies between GPUs, quiet switches, heavy models stay",
       Torpor()},
      {"torpor-fifo", "Torpor without its order of functions", TorporWith(&PolicyNames::ordering, "fifo")},
      {"torpor-random", "Torpor without its choice of GPU and source",
       TorporWith(&PolicyNames::gpu, "random")},
      {"torpor-lru", "Torpor without its choice of victims", TorporWith(&PolicyNames::eviction, "lru")},
      {"torpor-block", "Torpor without its blocks: freed memory is kept and handed out whole",
       TorporWith(&PolicyNames::memory, "block-cache")},
      {"native", "each function on one GPU for good; what finds no room is refused (002)", Bound("fixed")},
      {"infless-ka", "native, but a function that is idle for longer than usual makes room (002)",
       Bound("keep-alive")},
      {"nonswap", "native without a runtime for each function (002): the same here, where workers are shared",
       Bound("fixed")},
      {"simple-swap", "in order of arrival, to any GPU by lot, least recently used out (002)", SimpleSwap()},
      {"in-order", "in order of arrival, to a GPU that has the model, least recently used out", InOrder()},
  }};
  return kPresets;
}

absl::StatusOr<PolicyNames> FindPreset(std::string_view name) {
  return FindPolicy<PolicyNames>("preset", name, Presets());
}

}  // namespace troupe
