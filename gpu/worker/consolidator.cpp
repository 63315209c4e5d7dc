#include "gpu/worker/consolidator.hpp"

#include <utility>

#include "gpu/worker/room_maker.hpp"

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
  if (!moving_.empty() || now - *idle_since_ < kRest || memory_.changes() == in_vain_) return;
  if (memory_.fragmentation() >= kFragmented) Begin();
  if (moving_.empty()) in_vain_ = memory_.changes();
}

void Consolidator::Begin() {
  const auto movable = [this](const std::byte* address) { return table_.IdleAt(address).has_value(); };
  for (const DeviceMemory::Move& move : memory_.Consolidate(movable, kBudget)) {
    const std::uint64_t number = next_++;
    Moving& moving = moving_[number];
    moving.move = move;
    moving.place = *table_.IdleAt(move.from.address);
    moving.copy = stream_->CopyWithin(move.to, move.from, [this, number](const Completion& completion) {
      queue_.Post([this, number, ok = completion.status.ok()] { Copied(number, ok); });
    });
  }
}

// A copy that Finish has waited for is not here any more when its completion comes.
void Consolidator::Copied(std::uint64_t number, bool ok) {
  const auto ended = moving_.extract(number);
  if (ended.empty()) return;
  const Moving& moving = ended.mapped();
  const bool there = ok && table_.Move(moving.place, moving.move.to);
  moved_ += there;
  memory_.Free(there ? moving.move.from : moving.move.to);
}

bool Consolidator::Finish() {
  bool some = false;
  for (auto it = moving_.begin(); it != moving_.end();) {
    const auto& [number, moving] = *it++;
    const bool ok = moving.copy->Wait(RoomMaker::kPatience).ok();
    if (!moving.copy->done()) continue;
    Copied(number, ok);
    some = true;
  }
  return some;
}

}  // namespace troupe::gpu
