#include "cluster/ownership/ownership_plan.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "cluster/ownership/scaled_record.hpp"
#include "cluster/rectangles/rectangle_table.hpp"
#include "proto/gpu_instances.hpp"
#include "proto/gpu_sharing.hpp"

namespace troupe::cluster {

namespace {

std::string NameOf(const std::string& node, std::uint32_t gpu) {
  return absl::StrCat(node, "/", gpu);
}

// One function's instances while a plan is made.
struct Owning {
  const proto::FunctionRecord* record = nullptr;
  NodeNames nodes{};  // that have a copy of its model, and may get new instances
  std::vector<InstanceId> instances{};
  [[nodiscard]] bool IsScaled() const { return proto::IsScaled(record->sharing()); }
};

class Planning {
 public:
  Planning(const FunctionTable& functions, const MembershipTable& members, const HostCopies& copies,
           const ScaledPlanning& scaled)
      : functions_(functions), copies_(copies), scaled_(scaled) {
    for (const auto& [name, member] : members.members()) AddNode(member.record);
  }

  OwnershipPlan Make() {
    for (const FunctionVersion& version : functions_.owners()) AddOwner(version);
    for (const FunctionVersion& version : Candidates()) AddOwner(version);
    if (!scaled_.moves) table_.ForbidMoves();
    // What is owned comes first, so that nothing takes its place; what is only advised comes last.
    for (Owning& owner : owners_)
      if (!IsAdvised(owner)) KeepPlaces(owner);
    for (Owning& owner : owners_)
      if (!owner.IsScaled()) ResizePlaces(owner);
    for (Owning& owner : owners_)
      if (!owner.IsScaled()) AddPlaces(owner);
    for (Owning& owner : owners_)
      if (IsAdvised(owner)) KeepPlaces(owner);
    if (scaled_.rescale) RescaleOwners();
    // What is only advised is in no one's way: moves for it would be for nothing.
    if (scaled_.tidy && scaled_.advised == nullptr) static_cast<void>(table_.Replan());
    for (const Owning& owner : owners_) AddCommand(owner);
    return std::move(plan_);
  }

 private:
  struct Place {
    std::string node{};
    std::uint32_t gpu = 0;
  };

  void AddNode(const proto::MemberRecord& member) {
    const bool alive = member.state() == proto::MEMBER_ALIVE;
    if (member.kind() != proto::MEMBER_NODE || (!alive && member.state() != proto::MEMBER_SUSPECT)) return;
    for (const auto& gpu : member.gpus()) {
      if (!IsFit(gpu)) continue;
      const std::string name = NameOf(member.name(), gpu.index());
      if (!table_
               .AddGpu({.name = name,
                        .node = member.name(),
                        .kind = gpu.kind(),
                        .memory = Bytes(gpu.memory_bytes())})
               .ok())
        continue;
      places_[name] = {member.name(), gpu.index()};
      kinds_.insert(gpu.kind());
      if (alive) open_.insert(member.name());
    }
  }

  void AddOwner(const FunctionVersion& version) {
    const auto& record = functions_.At(version);
    owners_.push_back({.record = &record, .nodes = NodesFor(record)});
  }
  [[nodiscard]] std::set<FunctionVersion> Candidates() const {
    std::set<FunctionVersion> candidates(scaled_.asked.begin(), scaled_.asked.end());
    if (scaled_.advised != nullptr)
      for (const auto& [version, places] : *scaled_.advised) candidates.insert(version);
    std::erase_if(candidates, [&](const FunctionVersion& version) {
      return !functions_.scaled().contains(version) || functions_.owners().contains(version);
    });
    return candidates;
  }
  [[nodiscard]] bool IsAdvised(const Owning& owner) const {
    return scaled_.advised != nullptr && owner.IsScaled();
  }
  // A function that keeps state runs where its state is.
  [[nodiscard]] static bool MayOwn(const proto::FunctionRecord& record) {
    return record.loaded() && record.state_size() == 0;
  }
  // How many instances a function has that is not scaled.
  [[nodiscard]] static std::uint32_t Wanted(const proto::FunctionRecord& record) {
    const bool owns = MayOwn(record) && record.sharing().quota_request() > 0;
    return owns ? proto::InstancesOf(record.sharing(), 1) : 0;
  }
  [[nodiscard]] static Extent ExtentOf(const proto::FunctionRecord& record) {
    return {.quota = record.sharing().quota_request(), .sms = proto::SmPercentOf(record.sharing())};
  }
  [[nodiscard]] std::map<std::string, InstanceSize> SizesOf(const proto::FunctionRecord& record,
                                                            const Extent& extent) const {
    std::map<std::string, InstanceSize> sizes;
    for (const auto& kind : kinds_)
      sizes[kind] = {.extent = extent, .memory = {}, .weights = WeightsOf(record)};
    return sizes;
  }
  [[nodiscard]] NodeNames NodesFor(const proto::FunctionRecord& record) const {
    std::set<std::string> nodes;
    for (const auto& node : copies_.HoldersOf(record.model_digest()))
      if (open_.contains(node)) nodes.insert(node);
    return std::make_shared<const std::set<std::string>>(std::move(nodes));
  }
  // Where an instance is it may stay, also on a node that gets nothing new.
  [[nodiscard]] NodeNames NodesToStay(const Owning& owner) const {
    const auto& places = PlacesBefore(owner);
    const auto may_get_new = [&](const proto::GpuPlace& place) {
      return owner.nodes->contains(place.node());
    };
    if (std::ranges::all_of(places, may_get_new)) return owner.nodes;
    auto nodes = *owner.nodes;
    const auto holders = copies_.HoldersOf(owner.record->model_digest());
    for (const auto& place : places)
      if (scaled_.after_start || std::ranges::find(holders, place.node()) != holders.end())
        nodes.insert(place.node());
    return std::make_shared<const std::set<std::string>>(std::move(nodes));
  }
  [[nodiscard]] InstanceRequest RequestFor(const proto::FunctionRecord& record, const Extent& extent,
                                           NodeNames nodes) {
    return {.id = ++last_id_,
            .function = InstanceNameOf(VersionOf(record.key())),
            .by_kind = SizesOf(record, extent),
            .nodes = std::move(nodes)};
  }

  [[nodiscard]] const GpuPlaces& PlacesBefore(const Owning& owner) const {
    if (!IsAdvised(owner)) return owner.record->places();
    const auto advised = scaled_.advised->find(VersionOf(owner.record->key()));
    return advised == scaled_.advised->end() ? owner.record->places() : advised->second;
  }
  void KeepPlaces(Owning& owner) {
    const auto& record = *owner.record;
    if (!MayOwn(record)) return;
    const auto nodes = NodesToStay(owner);
    for (const auto& place : PlacesBefore(owner)) {
      if (!owner.IsScaled() && owner.instances.size() == Wanted(record)) break;
      if (!nodes->contains(place.node())) continue;
      const Rectangle booked{place.left(), place.bottom(), {place.quota(), place.sms()}};
      auto request = RequestFor(record, booked.extent, nodes);
      const InstanceId id = request.id;
      if (table_.PlaceAt(std::move(request), NameOf(place.node(), place.gpu()), booked).ok())
        owner.instances.push_back(id);
    }
  }

  // Loads change all the time: no instance moves for them.
  void RescaleOwners() {
    table_.ForbidMoves();
    ScaledOwners owners;
    for (const Owning& owner : owners_)
      if (owner.IsScaled() && MayOwn(*owner.record))
        owners[VersionOf(owner.record->key())] = {owner.instances, owner.nodes};
    scaled_.rescale(table_, last_id_, owners);
    for (Owning& owner : owners_)
      if (const auto after = owners.find(VersionOf(owner.record->key())); after != owners.end())
        owner.instances = after->second.instances;
  }

  void ResizePlaces(Owning& owner) {
    const auto& record = *owner.record;
    const auto wanted = ExtentOf(record);
    std::erase_if(owner.instances, [&](InstanceId id) {
      if (table_.Find(id)->place.extent == wanted) return false;
      if (table_.Resize(id, SizesOf(record, wanted)).ok()) return false;
      TROUPE_CHECK(table_.Release(id).ok(), "an instance that is booked is released");
      return true;
    });
  }

  void AddPlaces(Owning& owner) {
    const auto& record = *owner.record;
    if (owner.instances.size() >= Wanted(record)) return;
    if (owner.nodes->empty()) return NoteProblem(record, absl::UnavailableError("no node has its model yet"));
    while (owner.instances.size() < Wanted(record)) {
      auto request = RequestFor(record, ExtentOf(record), owner.nodes);
      const InstanceId id = request.id;
      if (!table_.Place(request).ok() && !PlaceBeforeScaled(request))
        return NoteProblem(record, NoRoomFor(record));
      owner.instances.push_back(id);
    }
  }

  // What is declared comes before what follows a load: instances that are in its way go, and the autoscaler finds others.
  bool PlaceBeforeScaled(const InstanceRequest& request) {
    struct Lifted {
      Owning* owner;
      InstanceRequest request;
      std::string gpu;
      Rectangle place;
    };
    std::vector<Lifted> lifted;
    for (Owning& owner : owners_) {
      if (!owner.IsScaled()) continue;
      for (const InstanceId id : std::exchange(owner.instances, {})) {
        const Booking* booking = table_.Find(id);
        lifted.push_back({&owner, *booking->request, table_.GpuOf(id), booking->place});
        TROUPE_CHECK(table_.Release(id).ok(), "an instance that is booked is released");
      }
    }
    const bool placed = !lifted.empty() && table_.Place(request).ok();
    for (Lifted& one : lifted) {
      const InstanceId id = one.request.id;
      if (table_.PlaceAt(std::move(one.request), one.gpu, one.place).ok()) one.owner->instances.push_back(id);
    }
    return placed;
  }

  [[nodiscard]] static absl::Status NoRoomFor(const proto::FunctionRecord& record) {
    const auto extent = ExtentOf(record);
    return absl::ResourceExhaustedError(absl::StrCat(
        "no GPU of a node that has its model has ", extent.sms, " % of the SMs free for ", extent.quota,
        " % of the time, and memory for its weights: it is bound late, on whichever GPU is free; let it or others "
        "request less, or add a GPU"));
  }

  void NoteProblem(const proto::FunctionRecord& record, const absl::Status& why) {
    plan_.problems.insert_or_assign(VersionOf(record.key()), why);
  }

  [[nodiscard]] proto::GpuPlace PlaceOf(InstanceId id) const {
    const auto& on = places_.at(table_.GpuOf(id));
    const Rectangle& rectangle = table_.Find(id)->place;
    proto::GpuPlace place;
    place.set_node(on.node);
    place.set_gpu(on.gpu);
    place.set_left(rectangle.left);
    place.set_bottom(rectangle.bottom);
    place.set_quota(rectangle.extent.quota);
    place.set_sms(rectangle.extent.sms);
    return place;
  }

  [[nodiscard]] bool IsAt(InstanceId id, const proto::GpuPlace& place) const {
    const Place& on = places_.at(table_.GpuWith(id)->gpu().name);
    return on.node == place.node() && on.gpu == place.gpu() &&
           table_.Find(id)->place == Rectangle{place.left(), place.bottom(), {place.quota(), place.sms()}};
  }

  void AddCommand(const Owning& owner) {
    proto::SetFunctionPlaces command;
    const auto& before = owner.record->places();
    if (IsAdvised(owner)) {
      if (!owner.instances.empty()) {
        auto& advice = plan_.advice[VersionOf(owner.record->key())];
        for (const InstanceId id : owner.instances) *advice.Add() = PlaceOf(id);
      }
      if (before.empty()) return;  // else it owned when it was not only advised
    } else {
      const auto is_at = [&](InstanceId id, const proto::GpuPlace& place) { return IsAt(id, place); };
      if (std::ranges::equal(owner.instances, before, is_at)) return;
      for (const InstanceId id : owner.instances) *command.add_places() = PlaceOf(id);
    }
    *command.mutable_key() = owner.record->key();
    plan_.revisions.push_back(owner.record->revision());
    plan_.commands.push_back(std::move(command));
  }

  const FunctionTable& functions_;
  const HostCopies& copies_;
  const ScaledPlanning& scaled_;
  // The manager waits for a plan: a search for moves ends soon, and then the function is bound late.
  RectangleTable table_{PackingPolicy(), ReplanLimits{.steps = 2'000, .steps_of_choice = 200}};
  std::map<std::string, Place> places_;  // by the GPU's name in the table
  GpuKinds kinds_;
  std::set<std::string> open_;  // nodes whose GPUs may get instances
  std::vector<Owning> owners_;
  InstanceId last_id_ = 0;
  OwnershipPlan plan_;
};

}  // namespace

OwnershipPlan PlanOwnership(const FunctionTable& functions, const MembershipTable& members,
                            const HostCopies& copies, const ScaledPlanning& scaled) {
  return Planning(functions, members, copies, scaled).Make();
}

}  // namespace troupe::cluster
