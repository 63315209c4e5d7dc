#include "gpu/worker/consolidator.hpp"

#include <utility>

namespace troupe::gpu {

Consolidator::Consolidator(DeviceMemory& memory, ModelTable& table, TaskQueue& queue)
    : memory_(memory), table_(table), queue_(queue), stream_(memory.device().MakeStream()) {}

Consolidator::~Consolidator() = default;

void Consolidator::Tick(Time now, bool idle) {
  if (!idle) {
    idle_since_.reset();
    return;
  }
  if (!idle_since_) idle_since_ = now;
  if (moving_ > 0 || now - *idle_since_ < kRest || memory_.changes() == in_vain_) return;
  if (memory_.fragmentation() >= kFragmented) Begin();
  if (moving_ == 0) in_vain_ = memory_.changes();
}

void Consolidator::Begin() {
  const auto movable = [this](const std::byte* address) { return table_.IdleAt(address).has_value(); };
  for (const DeviceMemory::Move& move : memory_.Consolidate(movable, kBudget)) {
    ++moving_;
    stream_->CopyWithin(
        move.to, move.from,
        [this, move, place = *table_.IdleAt(move.from.address)](const Completion& completion) {
          queue_.Post([this, move, place, ok = completion.status.ok()] { Copied(move, place, ok); });
        });
  }
}

void Consolidator::Copied(const DeviceMemory::Move& move, const ModelTable::Place& place, bool ok) {
  --moving_;
  const bool there = ok && table_.Move(place, move.to);
  moved_ += there;
  memory_.Free(there ? move.from : move.to);
}

}  // namespace troupe::gpu
