#include "node/scheduling/function_binding.hpp"

#include <algorithm>

namespace troupe::node {

namespace {

constexpr Duration kFirstBucket = std::chrono::milliseconds(1);
constexpr double kPercentile = 99;
// Until some pauses were seen: what StreamBox (004) and others keep.
constexpr Duration kFirstKeepAlive = std::chrono::minutes(10);
constexpr std::uint64_t kFewestPauses = 10;

}  // namespace

std::span<const PolicyEntry<BindingRule>> BindingPolicies() {
  static constexpr std::array<PolicyEntry<BindingRule>, 3> kTable = {{
      {"late", "any GPU, by request", BindingRule::kLate},
      {"fixed", "one GPU for good; what finds no room is refused", BindingRule::kFixed},
      {"keep-alive", "one GPU, until idle for longer than 99 % of the pauses between its requests",
       BindingRule::kKeepAlive},
  }};
  return kTable;
}

absl::StatusOr<BindingRule> FindBindingPolicy(std::string_view name) {
  return FindPolicy<BindingRule>("binding", name.empty() ? "late" : name, BindingPolicies());
}

Duration PauseHistogram::End(std::size_t bucket) {
  Duration end = kFirstBucket;
  for (std::size_t i = 0; i < bucket; ++i) end += end / 4;
  return end;
}

void PauseHistogram::Add(Duration pause) {
  std::size_t bucket = 0;
  for (Duration end = kFirstBucket; pause > end && bucket + 1 < kBuckets; end += end / 4) ++bucket;
  ++buckets_[bucket];
  ++count_;
}

Duration PauseHistogram::Percentile(double percentile) const {
  if (count_ == 0) return {};
  std::uint64_t below = 0;
  std::size_t bucket = 0;
  for (; bucket + 1 < kBuckets; ++bucket) {
    below += buckets_[bucket];
    if (static_cast<double>(below) * 100 >= percentile * static_cast<double>(count_)) break;
  }
  return End(bucket);
}

bool FunctionBinding::Due(const Model& model, Time now) const {
  if (rule_ != BindingRule::kKeepAlive || model.last == Time::min()) return false;
  const bool known = model.pauses.count() >= kFewestPauses;
  return now - model.last > (known ? model.pauses.Percentile(kPercentile) : kFirstKeepAlive);
}

bool FunctionBinding::Asked(ModelId id, Time now) {
  Model& model = models_[id];
  const bool due = model.home != kNowhere && Due(model, now);
  if (due) model.home = kNowhere;
  if (model.last != Time::min()) model.pauses.Add(now - model.last);
  model.last = now;
  return due;
}

Bytes FunctionBinding::BoundTo(std::uint32_t device) const {
  Bytes sum;
  for (const auto& [name, model] : models_)
    if (model.home == device) sum += model.bytes;
  return sum;
}

std::int64_t FunctionBinding::RoomOn(std::uint32_t device, Bytes memory) const {
  return static_cast<std::int64_t>(memory.count()) - static_cast<std::int64_t>(BoundTo(device).count());
}

std::uint32_t FunctionBinding::MostRoom(const Devices& devices) const {
  std::uint32_t best = kNowhere;
  std::int64_t most = 0;
  for (const auto& [device, memory] : devices) {
    const std::int64_t room = RoomOn(device, memory);
    if (best != kNowhere && room <= most) continue;
    best = device;
    most = room;
  }
  return best;
}

bool FunctionBinding::Bind(ModelId id, Bytes bytes, const Devices& devices, Time now,
                           absl::FunctionRef<bool(ModelId model)> used) {
  Model& own = models_[id];
  if (const auto home = devices.find(own.home); home != devices.end()) {
    if (own.bytes == bytes) return true;
    own.bytes = bytes;  // more is known of it than before
    if (used(id) || RoomOn(home->first, home->second) >= 0) return true;
  }
  own.home = kNowhere;
  const auto find = [&] {
    const std::uint32_t device = MostRoom(devices);
    const bool fits =
        device != kNowhere && RoomOn(device, devices.at(device)) >= static_cast<std::int64_t>(bytes.count());
    return fits ? device : kNowhere;
  };
  std::uint32_t device = find();
  if (device == kNowhere) {
    for (auto& [other, model] : models_)
      if (model.home != kNowhere && Due(model, now) && !used(other)) model.home = kNowhere;
    device = find();
  }
  own.home = device;
  own.bytes = bytes;
  return device != kNowhere;
}

void FunctionBinding::BindAnyway(ModelId id, Bytes bytes, const Devices& devices) {
  if (Model& own = models_[id]; !devices.contains(own.home)) {
    own.home = kNowhere;
    own.home = MostRoom(devices);
    own.bytes = bytes;
  }
}

std::uint32_t FunctionBinding::Home(ModelId model) const {
  const auto it = models_.find(model);
  return it == models_.end() ? kNowhere : it->second.home;
}

}  // namespace troupe::node
