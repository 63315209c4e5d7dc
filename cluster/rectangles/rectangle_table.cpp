#include "cluster/rectangles/rectangle_table.hpp"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.hpp"

namespace troupe::cluster {

namespace {

std::string DescribeSize(const InstanceSize& size) {
  return absl::StrCat(size.extent.quota, " % of the time and ", size.extent.sms, " % of the SMs with ",
                      FormatBytes(size.memory), " and ", FormatBytes(size.weights), " of weights");
}

bool IsPartOfGpu(std::uint32_t percent) {
  return percent > 0 && percent <= kWholeGpu;
}

}  // namespace

absl::Status RectangleTable::AddGpu(GpuDescription gpu) {
  if (gpu.name.empty() || gpu.node.empty() || gpu.memory == Bytes())
    return absl::InvalidArgumentError(absl::StrCat("GPU '", gpu.name, "' of node '", gpu.node, "' with ",
                                                   FormatBytes(gpu.memory),
                                                   ": a GPU needs a name, a node and memory"));
  const std::string name = gpu.name;
  const auto [it, added] = gpus_.try_emplace(name, std::move(gpu));
  if (!added) return absl::AlreadyExistsError(absl::StrCat("GPU ", name, " is in the table already"));
  of_node_[it->second.gpu().node].push_back(&it->second);
  SpaceFreed();
  return absl::OkStatus();
}

std::vector<InstanceId> RectangleTable::RemoveGpu(const std::string& gpu) {
  std::vector<InstanceId> lost;
  const auto it = gpus_.find(gpu);
  if (it == gpus_.end()) return lost;
  for (const auto& [id, booking] : it->second.bookings()) {
    lost.push_back(id);
    where_.erase(id);
  }
  std::erase(of_node_.at(it->second.gpu().node), &it->second);
  gpus_.erase(it);
  return lost;
}

absl::Status RectangleTable::Check(const InstanceRequest& request) const {
  if (request.by_kind.empty())
    return absl::InvalidArgumentError(
        absl::StrCat("an instance of ", request.function,
                     " names no kind of GPU on which it can run: name one with its size"));
  for (const auto& [kind, size] : request.by_kind)
    if (!IsPartOfGpu(size.extent.quota) || !IsPartOfGpu(size.extent.sms))
      return absl::InvalidArgumentError(absl::StrCat(
          "an instance of ", request.function, " asks for ", size.extent.quota, " % of the time and ",
          size.extent.sms, " % of the SMs of a GPU of kind '", kind, "': each is 1 to 100"));
  return absl::OkStatus();
}

absl::StatusOr<Placed> RectangleTable::Place(InstanceRequest request) {
  if (policy_.sms == PackingPolicy::Sms::kAll)
    for (auto& [kind, size] : request.by_kind) size.extent.sms = kWholeGpu;
  TROUPE_RETURN_IF_ERROR(Check(request));
  if (where_.contains(request.id))
    return absl::AlreadyExistsError(absl::StrCat("instance ", request.id, " of ", request.function,
                                                 " has a rectangle already, on ", GpuOf(request.id)));
  return PlaceChecked(std::make_shared<const InstanceRequest>(std::move(request)));
}

absl::Status RectangleTable::PlaceAt(InstanceRequest request, const std::string& gpu,
                                     const Rectangle& place) {
  TROUPE_RETURN_IF_ERROR(Check(request));
  if (where_.contains(request.id))
    return absl::AlreadyExistsError(absl::StrCat("instance ", request.id, " has a rectangle already"));
  const auto found = gpus_.find(gpu);
  if (found == gpus_.end()) return absl::NotFoundError(absl::StrCat("GPU ", gpu, " is not in the table"));
  const InstanceSize* size = found->second.SizeOf(request);
  const bool fits = size != nullptr && size->extent == place.extent && place.right() <= kWholeGpu &&
                    place.top() <= kWholeGpu && found->second.free().IsFree(place) &&
                    found->second.HasMemoryFor(request);
  if (!fits)
    return absl::FailedPreconditionError(absl::StrCat("instance ", request.id, " of ", request.function,
                                                      " has no such rectangle on GPU ", gpu));
  Book(std::make_shared<const InstanceRequest>(std::move(request)), {.gpu = gpu, .place = place});
  return absl::OkStatus();
}

absl::StatusOr<Placed> RectangleTable::PlaceChecked(const Request& request) {
  auto placed = BestFit(request, Among::kInUse);
  if (!placed && moves_ && policy_.moves == PackingPolicy::Moves::kReplan) {
    if (const auto layout = PlanRoomFor(gpus_, request, limits_)) {
      auto moves = Adopt(*layout);
      return Placed{.gpu = GpuOf(request->id), .place = Find(request->id)->place, .moves = std::move(moves)};
    }
  }
  if (!placed) placed = BestFit(request, Among::kEmpty);
  if (!placed) return NoRoom(*request);
  Book(request, *placed);
  return *std::move(placed);
}

bool RectangleTable::IsFreeAnywhere(const Extent& extent) const {
  if (nowhere_.contains(extent)) return false;
  const bool found = std::ranges::any_of(gpus_, [&](const auto& entry) {
    return extent.area() <= entry.second.FreeArea() && entry.second.free().BestFor(extent).has_value();
  });
  if (!found) nowhere_.insert(extent);
  return found;
}

std::optional<Placed> RectangleTable::BestFit(const Request& request, Among among) const {
  const auto is_free = [this](const auto& entry) { return IsFreeAnywhere(entry.second.extent); };
  if (std::ranges::none_of(request->by_kind, is_free)) return std::nullopt;
  const Layout layout(gpus_);
  std::optional<Placed> best;
  std::uint32_t least = 0;
  for (const auto* gpu : AllowedFor(*request)) {
    const auto& name = gpu->gpu().name;
    if (gpu->bookings().empty() != (among == Among::kEmpty) || !layout.SpreadAllows(*request, name)) continue;
    const auto fit = gpu->BestFor(*request);
    if (!fit || (best && std::tie(fit->waste, name) >= std::tie(least, best->gpu))) continue;
    least = fit->waste;
    best = Placed{.gpu = name, .place = fit->place};
  }
  return best;
}

std::vector<const GpuRectangles*> RectangleTable::AllowedFor(const InstanceRequest& request) const {
  std::vector<const GpuRectangles*> allowed;
  if (request.nodes == nullptr) {
    for (const auto& [name, gpu] : gpus_) allowed.push_back(&gpu);
    return allowed;
  }
  for (const auto& node : *request.nodes)
    if (const auto it = of_node_.find(node); it != of_node_.end())
      allowed.insert(allowed.end(), it->second.begin(), it->second.end());
  return allowed;
}

absl::Status RectangleTable::NoRoom(const InstanceRequest& request) const {
  const auto size_on = [](const auto& entry) {
    return absl::StrCat(DescribeSize(entry.second), " on a GPU of kind '", entry.first, "'");
  };
  std::uint32_t most = 0;
  std::size_t able = 0;
  for (const auto* gpu : AllowedFor(request)) {
    if (gpu->SizeOf(request) == nullptr) continue;
    ++able;
    most = std::max(most, gpu->free().LargestArea());
  }
  std::vector<std::string> sizes;
  std::ranges::transform(request.by_kind, std::back_inserter(sizes), size_on);
  return absl::ResourceExhaustedError(
      absl::StrCat("no GPU has room for an instance of ", request.function, ", which needs ",
                   absl::StrJoin(sizes, ", or "), ": of ", gpus_.size(), " GPUs ", able,
                   " are of such a kind on such a node, and the largest free rectangle of these is ",
                   most / kWholeGpu, " % of a GPU; add a GPU or ask for less"));
}

void RectangleTable::Book(const Request& request, const Placed& placed) {
  GpuRectangles& gpu = gpus_.at(placed.gpu);
  gpu.Book(request, placed.place);
  where_[request->id] = &gpu;
}

absl::Status RectangleTable::Release(InstanceId id) {
  const auto it = where_.find(id);
  if (it == where_.end())
    return absl::NotFoundError(absl::StrCat("instance ", id, " has no rectangle that could be released"));
  it->second->Release(id);
  where_.erase(it);
  SpaceFreed();
  return absl::OkStatus();
}

absl::StatusOr<Placed> RectangleTable::Resize(InstanceId id,
                                              const std::map<std::string, InstanceSize>& by_kind,
                                              ResizeTo to) {
  const auto it = where_.find(id);
  if (it == where_.end())
    return absl::NotFoundError(absl::StrCat("instance ", id, " has no rectangle that could change its size"));
  GpuRectangles& here = *it->second;
  const std::string gpu = here.gpu().name;
  InstanceRequest changed = *Find(id)->request;
  changed.by_kind = by_kind;
  if (policy_.sms == PackingPolicy::Sms::kAll)
    for (auto& [kind, size] : changed.by_kind) size.extent.sms = kWholeGpu;
  TROUPE_RETURN_IF_ERROR(Check(changed));
  const auto request = std::make_shared<const InstanceRequest>(std::move(changed));

  const Gpus::mapped_type before = here;
  const Booking old = here.Release(id);
  where_.erase(id);
  SpaceFreed();
  if (here.HasMemoryFor(*request)) {
    const Rectangle stays{old.place.left, old.place.bottom, here.SizeOf(*request)->extent};
    const auto fit = here.BestFor(*request);
    if (here.free().IsFree(stays) || fit) {
      Placed placed{.gpu = gpu, .place = here.free().IsFree(stays) ? stays : fit->place};
      Book(request, placed);
      return placed;
    }
  }
  auto placed = to == ResizeTo::kAnyGpu ? PlaceChecked(request) : NoRoom(*request);
  if (placed.ok()) return placed;
  here = before;
  where_[id] = &here;
  return placed.status();
}

std::vector<Move> RectangleTable::Replan() {
  if (policy_.moves != PackingPolicy::Moves::kReplan) return {};
  auto layout = PlanEmptyGpu(gpus_, limits_);
  if (!layout) layout = PlanLessFragmentation(gpus_, limits_);
  return layout ? Adopt(*layout) : std::vector<Move>();
}

std::vector<Move> RectangleTable::Adopt(const Layout& layout) {
  auto moves = layout.Moves();
  for (const auto& [name, gpu] : layout.changed()) {
    GpuRectangles& here = gpus_.at(name);
    here = gpu;
    for (const auto& [id, booking] : gpu.bookings()) where_[id] = &here;
  }
  SpaceFreed();
  return moves;
}

const Booking* RectangleTable::Find(InstanceId id) const {
  const auto it = where_.find(id);
  return it == where_.end() ? nullptr : &it->second->bookings().at(id);
}

const GpuRectangles* RectangleTable::GpuWith(InstanceId id) const {
  const auto it = where_.find(id);
  return it == where_.end() ? nullptr : it->second;
}

std::string RectangleTable::GpuOf(InstanceId id) const {
  const GpuRectangles* gpu = GpuWith(id);
  return gpu == nullptr ? "" : gpu->gpu().name;
}

std::size_t RectangleTable::InUse() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(gpus_, [](const auto& entry) { return !entry.second.bookings().empty(); }));
}

}  // namespace troupe::cluster
