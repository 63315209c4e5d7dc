#include "node/place_order.hpp"

namespace troupe::node {

GpuPlace GpuPlace::Of(GpuIndex gpu, std::uint32_t in_flight, Bytes free) {
  constexpr std::uint64_t kMostFree = (std::uint64_t{1} << 48) - 1, kMostInFlight = 0xffff;
  const std::uint64_t runs = std::min<std::uint64_t>(in_flight, kMostInFlight);
  return {runs << 48 | (kMostFree - std::min(free.count(), kMostFree)), gpu};
}

std::optional<GpuPlace> PlaceOrder::Find(GpuIndex gpu) const {
  const std::size_t at = gpu < at_.size() ? at_[gpu] : kNowhere;
  return at == kNowhere ? std::nullopt : std::optional(heap_[at]);
}

void PlaceOrder::MoveUp(std::size_t at, const GpuPlace& place) {
  for (; at > 0 && place < heap_[(at - 1) / 2]; at = (at - 1) / 2) Put(at, heap_[(at - 1) / 2]);
  Put(at, place);
}

void PlaceOrder::MoveDown(std::size_t at, const GpuPlace& place) {
  for (std::size_t child = 2 * at + 1; child < heap_.size(); child = 2 * at + 1) {
    if (child + 1 < heap_.size() && heap_[child + 1] < heap_[child]) ++child;
    if (!(heap_[child] < place)) break;
    Put(at, heap_[child]);
    at = child;
  }
  Put(at, place);
}

void PlaceOrder::Set(GpuIndex gpu, const std::optional<GpuPlace>& place) {
  if (at_.size() <= gpu) at_.resize(gpu + 1, kNowhere);
  std::size_t at = at_[gpu];
  if (at == kNowhere) {
    if (!place) return;
    at = heap_.size();
    heap_.push_back(*place);
    return MoveUp(at, *place);
  }
  // Without a place the last one of the heap takes its room.
  const GpuPlace moved = place ? *place : heap_.back();
  if (!place) {
    heap_.pop_back();
    at_[gpu] = kNowhere;
    if (at == heap_.size()) return;
  }
  if (at > 0 && moved < heap_[(at - 1) / 2]) return MoveUp(at, moved);
  MoveDown(at, moved);
}

}  // namespace troupe::node
