#include "cluster/ownership/ownership_plan.hpp"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "cluster/rectangles/rectangle_table.hpp"
#include "google/protobuf/util/message_differencer.h"
#include "proto/gpu_instances.hpp"

namespace troupe::cluster {

namespace {

std::string NameOf(const std::string& node, std::uint32_t gpu) {
  return absl::StrCat(node, "/", gpu);
}

// One function's instances while a plan is made.
struct Owning {
  const proto::FunctionRecord* record = nullptr;
  std::vector<InstanceId> instances{};
};

class Planning {
 public:
  Planning(const FunctionTable& functions, const MembershipTable& members, const HostCopies& copies)
      : functions_(functions), copies_(copies) {
    for (const auto& [name, member] : members.members()) AddNode(member.record);
  }

  OwnershipPlan Make() {
    for (const FunctionVersion& version : functions_.owners())
      owners_.push_back({.record = &functions_.At(version)});
    // What is owned comes first, so that nothing takes its place.
    for (Owning& owner : owners_) KeepPlaces(owner);
    for (Owning& owner : owners_) ResizePlaces(owner);
    for (Owning& owner : owners_) AddPlaces(owner);
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
      // Each GPU is a kind of its own, so that an instance can say on which ones it may be.
      if (!table_
               .AddGpu(
                   {.name = name, .node = member.name(), .kind = name, .memory = Bytes(gpu.memory_bytes())})
               .ok())
        continue;
      places_[name] = {member.name(), gpu.index()};
      if (alive) open_[member.name()].push_back(name);
    }
  }

  // A function that keeps state runs where its state is.
  [[nodiscard]] static std::uint32_t Wanted(const proto::FunctionRecord& record) {
    const bool owns = record.loaded() && record.sharing().quota_request() > 0 && record.state_size() == 0;
    return owns ? proto::InstancesOf(record.sharing(), 1) : 0;
  }
  [[nodiscard]] static InstanceSize SizeOf(const proto::FunctionRecord& record) {
    return {
        .extent = {.quota = record.sharing().quota_request(), .sms = proto::SmPercentOf(record.sharing())},
        .memory = {},
        .weights = Bytes(std::max(record.weights_bytes(), record.sharing().gpu_mem()))};
  }
  // On the GPUs of nodes that have a copy of its model.
  [[nodiscard]] std::map<std::string, InstanceSize> SizesOf(const proto::FunctionRecord& record) const {
    std::map<std::string, InstanceSize> sizes;
    for (const auto& node : copies_.HoldersOf(record.model_digest())) {
      const auto open = open_.find(node);
      if (open == open_.end()) continue;
      for (const auto& gpu : open->second) sizes.emplace(gpu, SizeOf(record));
    }
    return sizes;
  }
  [[nodiscard]] InstanceRequest RequestFor(const proto::FunctionRecord& record) {
    return {.id = ++last_id_,
            .function = absl::StrCat(record.key().name(), "/", record.key().version()),
            .by_kind = SizesOf(record)};
  }

  void KeepPlaces(Owning& owner) {
    const auto& record = *owner.record;
    const auto holders = copies_.HoldersOf(record.model_digest());
    for (const auto& place : record.places()) {
      if (owner.instances.size() == Wanted(record)) break;
      if (std::ranges::find(holders, place.node()) == holders.end()) continue;
      auto request = RequestFor(record);
      const InstanceId id = request.id;
      const std::string gpu = NameOf(place.node(), place.gpu());
      const Rectangle booked{place.left(), place.bottom(), {place.quota(), place.sms()}};
      auto size = SizeOf(record);
      size.extent = booked.extent;
      request.by_kind[gpu] = size;
      if (table_.PlaceAt(std::move(request), gpu, booked).ok()) owner.instances.push_back(id);
    }
  }

  void ResizePlaces(Owning& owner) {
    const auto& record = *owner.record;
    const auto wanted = SizeOf(record).extent;
    std::erase_if(owner.instances, [&](InstanceId id) {
      if (table_.Find(id)->place.extent == wanted) return false;
      if (table_.Resize(id, SizesOf(record)).ok()) return false;
      TROUPE_CHECK(table_.Release(id).ok(), "an instance that is booked is released");
      return true;
    });
  }

  void AddPlaces(Owning& owner) {
    const auto& record = *owner.record;
    while (owner.instances.size() < Wanted(record)) {
      auto request = RequestFor(record);
      const InstanceId id = request.id;
      if (request.by_kind.empty())
        return NoteProblem(record, absl::UnavailableError("no node has its model yet"));
      if (!table_.Place(std::move(request)).ok()) return NoteProblem(record, NoRoomFor(record));
      owner.instances.push_back(id);
    }
  }

  [[nodiscard]] static absl::Status NoRoomFor(const proto::FunctionRecord& record) {
    const auto extent = SizeOf(record).extent;
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

  void AddCommand(const Owning& owner) {
    proto::SetFunctionPlaces command;
    *command.mutable_key() = owner.record->key();
    auto before = command;
    *before.mutable_places() = owner.record->places();
    for (const InstanceId id : owner.instances) *command.add_places() = PlaceOf(id);
    if (!google::protobuf::util::MessageDifferencer::Equals(before, command))
      plan_.commands.push_back(std::move(command));
  }

  const FunctionTable& functions_;
  const HostCopies& copies_;
  // The manager waits for a plan: a search for moves ends soon, and then the function is bound late.
  RectangleTable table_{PackingPolicy(), ReplanLimits{.steps = 2'000, .steps_of_choice = 200}};
  std::map<std::string, Place> places_;                   // by the GPU's name in the table
  std::map<std::string, std::vector<std::string>> open_;  // by node: its GPUs that may get instances
  std::vector<Owning> owners_;
  InstanceId last_id_ = 0;
  OwnershipPlan plan_;
};

}  // namespace

OwnershipPlan PlanOwnership(const FunctionTable& functions, const MembershipTable& members,
                            const HostCopies& copies) {
  return Planning(functions, members, copies).Make();
}

}  // namespace troupe::cluster
