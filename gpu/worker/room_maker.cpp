#include "gpu/worker/room_maker.hpp"

#include <utility>
#include <vector>

namespace troupe::gpu {

RoomMaker::RoomMaker(DeviceMemory& memory, ModelTable& table)
    : memory_(memory), table_(table), stream_(memory.device().MakeStream()) {}

RoomMaker::~RoomMaker() = default;

bool RoomMaker::MakeRoom(Bytes size) {
  const auto movable = [this](const std::byte* address) { return table_.IdleAt(address).has_value(); };
  const std::vector<DeviceMemory::Move> moves = memory_.MakeRoom(movable, size);
  std::vector<EventPtr> copies;
  for (const DeviceMemory::Move& move : moves)
    copies.push_back(stream_->CopyWithin(move.to, move.from, nullptr));
  bool all = !moves.empty();
  for (std::size_t i = 0; i < moves.size(); ++i) {
    const bool there =
        copies[i]->Wait(kPatience).ok() && table_.Move(*table_.IdleAt(moves[i].from.address), moves[i].to);
    // A range that is still being copied keeps both its places, so that no other copy writes there.
    if (copies[i]->done()) memory_.Free(there ? moves[i].from : moves[i].to);
    all = all && there;
  }
  return all;
}

}  // namespace troupe::gpu
