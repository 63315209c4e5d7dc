#include "node/scheduling/place_order.hpp"

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

void PlaceOrder::FindFirst() const {
  known_ = 0;
  InHeapOrder([&](const GpuPlace& place) {
    first_[known_++] = place;
    return known_ < kFirst;
  });
}

// What stands behind those in the row may not be next: it comes to their end only when the row has all
// others.
void PlaceOrder::ChangeFirst(const std::optional<GpuPlace>& from, const std::optional<GpuPlace>& to) {
  GpuPlace* const begin = first_.data();
  if (from && known_ > 0 && !(begin[known_ - 1] < *from)) {
    GpuPlace* const at = std::lower_bound(begin, begin + known_, *from);
    std::copy(at + 1, begin + known_, at);
    --known_;
  }
  const bool has_others = known_ == heap_.size() - (from ? 1 : 0);
  if (!to || (!has_others && (known_ == 0 || begin[known_ - 1] < *to))) return;
  GpuPlace* const at = std::lower_bound(begin, begin + known_, *to);
  std::copy_backward(at, begin + known_, begin + known_ + 1);
  *at = *to;
  known_ = std::min(known_ + 1, kFirst);
}

void PlaceOrder::Set(GpuIndex gpu, const std::optional<GpuPlace>& place) {
  if (at_.size() <= gpu) at_.resize(gpu + 1, kNowhere);
  std::size_t at = at_[gpu];
  if (at != kNowhere && place == heap_[at]) return;
  ChangeFirst(at == kNowhere ? std::nullopt : std::optional(heap_[at]), place);
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
