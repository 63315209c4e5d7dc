#include "cluster/rectangles/gpu_rectangles.hpp"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.hpp"

namespace troupe::cluster {

const InstanceSize* GpuRectangles::SizeOf(const InstanceRequest& request) const {
  if (request.nodes != nullptr && !request.nodes->contains(gpu_.node)) return nullptr;
  const auto it = request.by_kind.find(gpu_.kind);
  return it == request.by_kind.end() ? nullptr : &it->second;
}

bool GpuRectangles::HasFunction(const std::string& function) const {
  return std::ranges::any_of(bookings_,
                             [&](const auto& entry) { return entry.second.request->function == function; });
}

bool GpuRectangles::HasMemoryFor(const InstanceRequest& request) const {
  const InstanceSize* size = SizeOf(request);
  // Each part by itself first, so that no sum overflows.
  return size != nullptr && size->memory <= gpu_.memory && size->weights <= gpu_.memory &&
         MemoryWith(&request) <= gpu_.memory;
}

std::optional<FreeFit> GpuRectangles::BestFor(const InstanceRequest& request) const {
  if (!HasMemoryFor(request)) return std::nullopt;
  return free_.BestFor(SizeOf(request)->extent);
}

void GpuRectangles::Book(std::shared_ptr<const InstanceRequest> request, const Rectangle& place) {
  TROUPE_CHECK(HasMemoryFor(*request), "an instance is booked where its kind or memory does not allow it");
  TROUPE_CHECK(SizeOf(*request)->extent == place.extent,
               "an instance is booked with another size than its own");
  free_.Take(place);
  used_area_ += place.area();
  const InstanceId id = request->id;
  TROUPE_CHECK(bookings_.emplace(id, Booking{std::move(request), place}).second,
               "an instance is booked twice");
}

Booking GpuRectangles::Release(InstanceId id) {
  const auto it = bookings_.find(id);
  TROUPE_CHECK(it != bookings_.end(), "an instance is released where it is not booked");
  Booking released = std::move(it->second);
  bookings_.erase(it);
  used_area_ -= released.place.area();
  std::vector<Rectangle> placed;
  placed.reserve(bookings_.size());
  for (const auto& [other, booking] : bookings_) placed.push_back(booking.place);
  free_.Release(released.place, placed);
  return released;
}

Bytes GpuRectangles::MemoryWith(const InstanceRequest* request) const {
  Bytes used;
  // Versions of a function may differ in size: the larger weights count. A GPU has few functions.
  std::vector<std::pair<std::string_view, Bytes>> weights;
  const auto add = [&](const InstanceRequest& one) {
    const InstanceSize& size = *SizeOf(one);
    used += size.memory;
    const auto shared = std::ranges::find(weights, one.function, &std::pair<std::string_view, Bytes>::first);
    if (shared == weights.end()) {
      weights.emplace_back(one.function, size.weights);
    } else {
      shared->second = std::max(shared->second, size.weights);
    }
  };
  for (const auto& [id, booking] : bookings_) add(*booking.request);
  if (request != nullptr) add(*request);
  for (const auto& [function, shared] : weights) used += shared;
  return used;
}

double GpuRectangles::Fragmentation() const {
  return static_cast<double>(FreeArea() - free_.LargestArea()) / (kWholeGpu * kWholeGpu);
}

}  // namespace troupe::cluster
