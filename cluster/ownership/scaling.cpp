#include "cluster/ownership/scaling.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "cluster/admin/answers.hpp"
#include "cluster/admin/staged_models.hpp"
#include "cluster/failure.hpp"
#include "cluster/ownership/scaled_record.hpp"
#include "cluster/parts.hpp"
#include "proto/gpu_sharing.hpp"

namespace troupe::cluster {

namespace {

// Of the whole GPUs that its instances would come to: each by its part of the SMs and of the time.
double AreaOf(const ScaledOwner& owner, const RectangleTable& table) {
  double area = 0;
  for (const InstanceId id : owner.instances) area += table.Find(id)->place.extent.area();
  return area / (kWholeGpu * kWholeGpu);
}

// Nodes other than these that have a GPU on which an instance of the function fits.
std::size_t NodesWithRoom(const ScaledFunction& function, const NodeNames& others,
                          const RectangleTable& table) {
  std::set<std::string_view> nodes;
  if (std::ranges::none_of(function.extents,
                           [&](const Extent& extent) { return table.IsFreeAnywhere(extent); }))
    return 0;
  for (const auto& [name, gpu] : table.gpus()) {
    if (others->contains(gpu.gpu().node) || gpu.UsedMemory() + function.weights > gpu.gpu().memory) continue;
    const auto& free = gpu.free();
    const auto fits = [&free](const Extent& extent) { return free.BestFor(extent).has_value(); };
    if (std::ranges::any_of(function.extents, fits)) nodes.insert(gpu.gpu().node);
  }
  return nodes.size();
}

FunctionLoad LoadOf(const FunctionLoads::Load& told, double seconds, double gpus) {
  return {.arrived_per_second = static_cast<double>(told.arrived) / seconds,
          .served_per_second = static_cast<double>(told.served) / seconds,
          .waiting = told.waiting,
          .busy = gpus > 0 ? ToSeconds(told.gpu_time) / seconds / gpus : 0,
          .known_per_second = {},
          .binding = {.seconds = seconds,
                      .ended = static_cast<double>(told.ended),
                      .late = static_cast<double>(told.late),
                      .swapping = ToSeconds(told.swapping),
                      .gpu_seconds = ToSeconds(told.gpu_time)}};
}

}  // namespace

void Scaling::Hear(const proto::Heartbeat& heartbeat) {
  const auto& scaled = parts_.catalogue.functions().table().scaled();
  if (!scaled.empty()) loads_.Hear(heartbeat, scaled, parts_.out.now());
}

bool Scaling::Due() {
  const auto& functions = parts_.catalogue.functions().table();
  const Time now = parts_.out.now();
  if (functions.scaled().empty() || now - looked_ < kSoon) return false;
  if (now - looked_ < kPeriod && !loads_.AnyWaits() && !Surges()) return false;
  const bool owns = parts_.ownership.HasAdvice() ||
                    std::ranges::any_of(functions.owners(), [&](const FunctionVersion& version) {
                      return functions.scaled().contains(version);
                    });
  if (owns || !loads_.Told().empty() || !functions.with_minimum().empty()) return true;
  looked_ = now;
  return false;
}

std::vector<FunctionVersion> Scaling::Asked() const {
  auto asked = loads_.Told();
  const auto& functions = parts_.catalogue.functions().table().with_minimum();
  asked.insert(asked.end(), functions.begin(), functions.end());
  return asked;
}

bool Scaling::Surges() const {
  const double seconds = ToSeconds(parts_.out.now() - looked_);
  return std::ranges::any_of(loads_.since(), [&](const auto& told) {
    const auto known = known_.find(told.first);
    if (known == known_.end() || known->second.capacity <= 0) return false;
    return static_cast<double>(told.second.arrived) > known->second.capacity * seconds;
  });
}

FunctionScaler* Scaling::ScalerOf(const proto::FunctionRecord& record, const GpuKinds& kinds) {
  const auto version = VersionOf(record.key());
  auto function = ScaledFunctionOf(record, parts_.catalogue.profiles(), kinds);
  function.policy = parts_.settings.scaling.policy;
  function.forecast = parts_.settings.scaling.forecast;
  function.owning = parts_.settings.scaling.owning;
  Known& known = known_[version];
  // The name was that of a function with another model, which has been removed: what was observed is not of this one.
  if (known.digest != record.model_digest()) {
    functions_.Remove(function.name);
    known.is_new = true;
  }
  known.digest = record.model_digest();
  known.looked = parts_.out.now();
  FunctionScaler* scaler = functions_.Find(function.name);
  if (scaler == nullptr) {
    const auto added = functions_.Add(function);
    TROUPE_CHECK(added.ok(), "a function that is scaled has limits or a profile that are not possible");
    scaler = functions_.Find(function.name);
  } else if (known.function != function) {
    scaler->Change(function);
  }
  known.function = std::move(function);
  return scaler;
}

void Scaling::ForgetOthers() {
  const auto& scaled = parts_.catalogue.functions().table().scaled();
  std::erase_if(known_, [&](const auto& known) {
    const bool kept = scaled.contains(known.first) && parts_.out.now() - known.second.looked < kKept;
    if (!kept) functions_.Remove(known.second.function.name);
    return !kept;
  });
}

void Scaling::Rescale(RectangleTable& table, InstanceId& last_id, ScaledOwners& owners) {
  const Time now = parts_.out.now();
  ForgetOthers();
  const auto told = loads_.Take(now);
  const double seconds = ToSeconds(now - looked_);
  // What was told before the first look is of no known time.
  if (std::exchange(looked_, now) == Time()) return;

  const auto kinds = KindsOf(parts_.members.table());
  const auto& records = parts_.catalogue.functions().table();
  std::map<std::string, FunctionLoad> loads;
  std::map<FunctionVersion, FunctionScaler*> looked_at;
  for (auto& [version, owner] : owners) {
    const auto load = told.find(version);
    // A function that nothing asks for, and that owns nothing, stays so, unless it is to own something all the same.
    if (load == told.end() && owner.instances.empty() && !records.with_minimum().contains(version)) continue;
    FunctionScaler* scaler = ScalerOf(records.At(version), kinds);
    scaler->Adopt(owner.instances, owner.nodes);
    if (std::exchange(known_.at(version).is_new, false) && !owner.instances.empty())
      scaler->TakeOver(table, now);
    loads[scaler->function().name] =
        LoadOf(load == told.end() ? FunctionLoads::Load() : load->second, seconds, AreaOf(owner, table));
    looked_at[version] = scaler;
  }
  std::vector<ScaleDecision> decisions;
  InstanceId next = last_id + 1;
  functions_.Tick(loads,
                  {.table = table, .next_id = next, .now = now, .ahead = kAhead, .decisions = decisions});
  last_id = next - 1;
  for (const auto& [version, scaler] : looked_at) {
    auto& instances = owners.at(version).instances;
    instances.clear();
    for (const ServingInstance& serving : scaler->Serving(table)) instances.push_back(serving.id);
    std::ranges::sort(instances);
    Known& known = known_.at(version);
    known.capacity = scaler->Capacity(table);
    if (scaler->owning().owns()) WantCopies(*scaler, known, owners.at(version).nodes, table);
    scaler->Adopt({}, nullptr);  // this table ends with the plan
  }
}

void Scaling::WantCopies(const FunctionScaler& scaler, const Known& known, const NodeNames& holders,
                         const RectangleTable& table) const {
  const double wanted = scaler.need().wanted;
  const bool at_most = scaler.Instances().size() >= scaler.function().limits.max_instances;
  if (wanted <= known.capacity || at_most) return;
  const auto with_room = NodesWithRoom(scaler.function(), holders, table);
  if (with_room == 0) return;
  // If each has as much room as the nodes that have a copy.
  const auto have = static_cast<double>(holders->size());
  const double more = known.capacity > 0 ? std::ceil(have * (wanted / known.capacity - 1)) : 1;
  parts_.copies.Foreseen(
      known.digest,
      static_cast<std::uint32_t>(
          holders->size() + std::min<std::size_t>(with_room, static_cast<std::size_t>(std::min(more, 1e6)))));
}

void Scaling::Show(Ask ask, const proto::FunctionKey& key) const {
  const auto* record = parts_.catalogue.functions().table().Find(key);
  if (record == nullptr)
    return parts_.admin.Reply(ask, Failure<proto::AdminReply>(NotOneFunction(parts_.catalogue, key)));
  if (!proto::IsScaled(record->sharing()))
    return parts_.admin.Reply(
        ask,
        Failure<proto::AdminReply>(absl::FailedPreconditionError(absl::StrCat(
            cluster::Describe(record->key()),
            " is not scaled by its load: leave its quota_request to the manager, with 'troupe function update ",
            record->key().name(), " --quota-request auto'"))));
  proto::AdminReply reply;
  auto& status = *reply.mutable_scaling();
  *status.mutable_key() = record->key();
  status.set_policy(parts_.settings.scaling.policy);
  status.set_forecast(parts_.settings.scaling.forecast);
  status.set_binding(BindingOf(*record));
  status.set_dry_run(parts_.settings.scaling.effect == ScalingEffect::kShown);
  const auto* places = parts_.ownership.AdviceFor(record->key());
  *status.mutable_places() = places == nullptr ? record->places() : *places;
  if (const auto* scaler = functions_.Find(InstanceNameOf(VersionOf(record->key()))))
    Describe(*scaler, VersionOf(record->key()), status);
  parts_.admin.Reply(ask, std::move(reply));
}

std::string Scaling::BindingOf(const proto::FunctionRecord& record) const {
  if (!proto::IsScaled(record.sharing())) return "";
  const auto* scaler = functions_.Find(InstanceNameOf(VersionOf(record.key())));
  if (scaler == nullptr) return "no request has come since the manager began";
  const OwningChoice& owning = scaler->owning();
  if (owning.rule() == OwningRule::kAlways)
    return "it owns parts of GPUs while it has requests (owning=always)";
  if (owning.rule() == OwningRule::kNever) return owning.because();
  return absl::StrCat(owning.owns() ? "it owns parts of GPUs: " : "it is bound late: ", owning.Why());
}

void Scaling::Describe(const FunctionScaler& scaler, const FunctionVersion& version,
                       proto::ScalingStatus& status) const {
  const ScalingNeed& need = scaler.need();
  status.set_arrived(need.arrived);
  status.set_expected(need.expected);
  status.set_wanted(need.wanted);
  status.set_capacity(known_.at(version).capacity);
  status.set_basis(scaler.rates().Basis());
  status.set_waiting(need.waiting);
  status.set_busy(need.busy);
  for (const ScaleDecision& decision : scaler.history()) {
    auto& told = *status.add_decisions();
    told.set_age_ns((parts_.out.now() - decision.at).count());
    told.set_action(std::string(NameOf(decision.action)));
    told.set_gpu(decision.gpu);
    told.set_reason(decision.reason);
  }
}

}  // namespace troupe::cluster
