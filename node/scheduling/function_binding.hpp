// The `binding` slot: whether a model may go to any GPU at any time, or has one where nothing pushes it out;
// and the models that have. Owned by the swap scheduler; no clock: time comes in.
//
//   unbound -> bound (room was kept for it on one GPU) -> unbound (`keep-alive`: it was idle for too long;
//              its GPU is unfit; it was forgotten)
//
// The bytes bound to a device are at most its memory, unless models outgrew what was kept for them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "base/policy.hpp"
#include "base/units.hpp"
#include "node/names.hpp"

namespace troupe::node {

enum class BindingRule {
  kLate,       // any GPU, by request
  kFixed,      // one GPU, from the first request on
  kKeepAlive,  // one GPU, until it was idle for longer than 99 % of the pauses between its requests
};

// `late` (default, also by the empty name): Torpor (002) and LALB (003).
// `fixed`: what the containers of 002 section 7 do: a model that finds no room on any GPU is refused, and
//   none is evicted for another.
// `keep-alive`: the same, but room is given back by the rule of INFless: after the 99th percentile of the
//   times between requests.
// The last two need a gpu policy that binds early (`bound`).
[[nodiscard]] std::span<const PolicyEntry<BindingRule>> BindingPolicies();
[[nodiscard]] absl::StatusOr<BindingRule> FindBindingPolicy(std::string_view name);

// Times between the requests of one model, in buckets each a quarter wider than the one before: the error of
// a percentile is at most that.
class PauseHistogram {
 public:
  void Add(Duration pause);
  [[nodiscard]] std::uint64_t count() const { return count_; }
  // The upper end of the bucket in which the percentile lies. Of an empty one: zero.
  [[nodiscard]] Duration Percentile(double percentile) const;

 private:
  static constexpr std::size_t kBuckets = 96;  // from a millisecond to some weeks
  [[nodiscard]] static Duration End(std::size_t bucket);
  std::array<std::uint32_t, kBuckets> buckets_{};
  std::uint64_t count_ = 0;
};

class FunctionBinding {
 public:
  static constexpr std::uint32_t kNowhere = ~std::uint32_t{0};
  // Devices that could hold the model, with their memory.
  using Devices = std::map<std::uint32_t, Bytes>;

  explicit FunctionBinding(BindingRule rule) : rule_(rule) {}
  [[nodiscard]] bool late() const { return rule_ == BindingRule::kLate; }

  // A request for `model` came. True when its binding had run out: what is left of it somewhere goes.
  bool Asked(ModelId model, Time now);
  // Binds the function to the device with the most room, when that is at least `bytes`. `used`: which models
  // are in use and keep their place although they are to be evicted. False: there is no room.
  bool Bind(ModelId model, Bytes bytes, const Devices& devices, Time now,
            absl::FunctionRef<bool(ModelId model)> used);
  // A request of it waits, and its device is gone, or it turned out larger than what was kept: it gets the
  // one with the most room, be that too little.
  void BindAnyway(ModelId model, Bytes bytes, const Devices& devices);
  void Forget(ModelId model) { models_.erase(model); }

  [[nodiscard]] std::uint32_t Home(ModelId model) const;
  [[nodiscard]] bool Bound(ModelId model) const { return Home(model) != kNowhere; }
  [[nodiscard]] Bytes BoundTo(std::uint32_t device) const;

 private:
  struct Model {
    std::uint32_t home = kNowhere;
    Bytes bytes{};
    Time last = Time::min();
    PauseHistogram pauses{};
  };
  [[nodiscard]] bool Due(const Model& model, Time now) const;
  // Signed: what is bound may be more than the memory.
  [[nodiscard]] std::int64_t RoomOn(std::uint32_t device, Bytes memory) const;
  [[nodiscard]] std::uint32_t MostRoom(const Devices& devices) const;

  const BindingRule rule_;
  absl::flat_hash_map<ModelId, Model> models_;
};

}  // namespace troupe::node
