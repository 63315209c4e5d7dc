#include "cluster/rectangles/gpu_rectangles.hpp"

#include <algorithm>
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
  if (size == nullptr || size->memory > gpu_.memory || size->weights > gpu_.memory) return false;
  const Bytes here = WeightsOf(request.function);
  const Bytes weights = size->weights > here ? size->weights - here : Bytes();
  return memory_ + size->memory + weights <= gpu_.memory;
}

std::optional<FreeFit> GpuRectangles::BestFor(const InstanceRequest& request) const {
  const InstanceSize* size = SizeOf(request);
  if (size == nullptr || size->extent.area() > FreeArea()) return std::nullopt;
  auto fit = free_.BestFor(size->extent);
  return fit && HasMemoryFor(request) ? fit : std::nullopt;
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
  CountMemory();
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
  CountMemory();
  return released;
}

Bytes GpuRectangles::WeightsOf(std::string_view function) const {
  const auto it = std::ranges::find(weights_, function, &Weights::first);
  return it == weights_.end() ? Bytes() : it->second;
}

void GpuRectangles::CountMemory() {
  memory_ = {};
  weights_.clear();
  for (const auto& [id, booking] : bookings_) {
    const InstanceSize& size = *SizeOf(*booking.request);
    memory_ += size.memory;
    const auto it = std::ranges::find(weights_, booking.request->function, &Weights::first);
    if (it == weights_.end()) {
      weights_.emplace_back(booking.request->function, size.weights);
    } else {
      it->second = std::max(it->second, size.weights);
    }
  }
  for (const auto& [function, weights] : weights_) memory_ += weights;
}

double GpuRectangles::Fragmentation() const {
  return static_cast<double>(FreeArea() - free_.LargestArea()) / (kWholeGpu * kWholeGpu);
}

}  // namespace troupe::cluster
