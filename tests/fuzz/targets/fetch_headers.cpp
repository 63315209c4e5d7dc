// The headers of fetches between hosts, as another host may send them: asks for slices of arenas (first byte even)
// and answers to asks of ours (odd). An ask that is granted gives bytes inside of its slice and no others.
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "base/check.hpp"
#include "transport/arena.hpp"
#include "transport/arena_exports.hpp"
#include "transport/fetch_wire.hpp"

namespace {

using namespace troupe;
using namespace troupe::transport;

// An arena of this process, which is also served from here as if it were another process's. Seeds name its
// identity with kArenaOfSeeds, since it is random in each process.
constexpr std::uint64_t kArenaOfSeeds = 0x6172656e61;

struct World {
  World() {
    arena = *Arena::Create("fuzz", KiB(64));
    for (const std::uint64_t size : {1, 100, 4096, 20000}) slices.push_back(*arena->Allocate(Bytes(size)));
    UniqueFd own(arena->fd());
    auto copy = own.Duplicate();
    (void)own.Release();
    auto memory = MemoryFile::Open(*std::move(copy), MemoryFile::Access::kReadOnly);
    TROUPE_CHECK(memory.ok(), "the arena of the fuzz target is mapped");
    exported = exports->Add(arena->id(), std::make_shared<const MemoryFile>(*std::move(memory)));
  }
  std::shared_ptr<Arena> arena;
  std::vector<ArenaSlice> slices;
  std::shared_ptr<ArenaExports> exports = std::make_shared<ArenaExports>();
  std::shared_ptr<const void> exported;
};

void CheckInside(const World& world, const FetchAsk& ask, std::span<const std::byte> bytes) {
  TROUPE_CHECK(bytes.size() == ask.length, "as many bytes are sent as were asked for");
  for (const ArenaSlice& slice : world.slices)
    if (slice.slice == ask.slice)
      return TROUPE_CHECK(slice.offset == ask.offset && bytes.size() <= slice.bytes.size(),
                          "only bytes of the slice that was named are sent");
  TROUPE_CHECK(false, "a slice that is not there was sent");
}

void Ask(World& world, FetchAsk ask) {
  if (ask.arena == kArenaOfSeeds) ask.arena = world.arena->id();
  const proto::ArenaRef ref = RefOf(ask);
  if (const auto exported = world.exports->Pin(ref); exported.ok()) {
    CheckInside(world, ask, exported->bytes);
    if (!exported->bytes.empty()) {
      volatile auto last = exported->bytes.back();  // it is mapped
      (void)last;
    }
  }
  const auto own = world.arena->Pin(ref.offset(), ref.slice(), ref.length());
  if (!own.ok()) return;
  CheckInside(world, ask, *own);
  TROUPE_CHECK(world.arena->Release(ref.offset(), ref.slice()).ok(), "what was pinned is released");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static World& world = *new World();
  if (size == 0) return 0;
  if (data[0] % 2 == 0) {
    if (const auto ask = ReadFetchAsk(data + 1, size - 1)) Ask(world, *ask);
  } else if (const auto answer = ReadFetchAnswer(data + 1, size - 1)) {
    // Any code from the network becomes a status.
    (void)absl::Status(static_cast<absl::StatusCode>(answer->code), "refused").ToString();
  }
  return 0;
}
