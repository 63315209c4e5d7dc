// A ring whose memory the process at the other end may have filled with anything: 64 bytes of control page
// (magic, version, capacity, head, tail, sleeping), then records.
#include <sys/eventfd.h>
#include <sys/mman.h>

#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "base/check.hpp"
#include "proto/worker.pb.h"
#include "transport/ring.hpp"
#include "transport/ring_message.hpp"

namespace {

using namespace troupe;
using namespace troupe::transport;

constexpr std::size_t kCapacity = 4096;
constexpr std::size_t kControl = 4096;
constexpr std::size_t kFields = 48;  // of the control page that an input fills

struct World {
  World() {
    auto made = RingMemory::Create("fuzz", Bytes(kCapacity));
    TROUPE_CHECK(made.ok(), "the ring of the fuzz target is made");
    ring = *std::move(made);
    void* mapped =
        mmap(nullptr, kControl + kCapacity, PROT_READ | PROT_WRITE, MAP_SHARED, ring->memory_fd(), 0);
    TROUPE_CHECK(mapped != MAP_FAILED, "the ring of the fuzz target is mapped");
    memory = static_cast<std::byte*>(mapped);
    std::memcpy(begin.data(), memory, begin.size());
  }
  std::shared_ptr<RingMemory> ring;
  std::byte* memory = nullptr;
  std::array<std::byte, kControl> begin{};  // the control page as it was made
};

void Read(const std::shared_ptr<RingMemory>& ring) {
  auto reader = RingReader::Attach(ring);
  if (!reader.ok()) return;
  RingRecord record;
  proto::WorkerOrder order;
  proto::WorkerOutcome outcome;
  std::size_t read = 0;
  for (auto more = reader->TryRead(record); more.ok() && *more; more = reader->TryRead(record)) {
    read += record.payload.size() + 16;
    TROUPE_CHECK(read <= ring->capacity().count(), "no more is read than was written");
    (void)ParseMessage(record, order);
    (void)ParseMessage(record, outcome);
  }
}

void Write(const std::shared_ptr<RingMemory>& ring) {
  auto writer = RingWriter::Attach(ring);
  if (!writer.ok()) return;
  const std::vector<std::byte> payload(100);
  for (std::size_t i = 0; i <= kCapacity / payload.size(); ++i) {
    const auto written = writer->TryWrite(1, 0, i, payload);
    if (!written.ok() || !*written) return;
  }
}

UniqueFd CopyOf(int fd) {
  UniqueFd own(fd);
  auto copy = own.Duplicate();
  (void)own.Release();
  TROUPE_CHECK(copy.ok(), "a descriptor of the fuzz target is copied");
  return *std::move(copy);
}

}  // namespace

// First byte: bit 0, the whole control page comes from the input; bit 1, the writer's side too.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static World& world = *new World();
  if (size < 1) return 0;
  const std::uint8_t mode = data[0];
  std::span<const std::uint8_t> input(data + 1, size - 1);
  std::memcpy(world.memory, world.begin.data(), world.begin.size());
  std::memset(world.memory + kControl, 0, kCapacity);
  if ((mode & 1) != 0) {
    const std::size_t fields = std::min(kFields, input.size());
    std::memcpy(world.memory, input.data(), fields);
    input = input.subspan(fields);
  }
  // Head and tail lie in cache lines of their own.
  for (const std::size_t at : {64, 128}) {
    const std::size_t bytes = std::min<std::size_t>(8, input.size());
    std::memcpy(world.memory + at, input.data(), bytes);
    input = input.subspan(bytes);
  }
  std::memcpy(world.memory + kControl, input.data(), std::min(kCapacity, input.size()));
  std::shared_ptr<RingMemory> ring = world.ring;
  if ((mode & 1) != 0) {
    auto opened = RingMemory::Open(CopyOf(ring->memory_fd()), CopyOf(ring->doorbell_fd()));
    if (!opened.ok()) return 0;
    ring = *std::move(opened);
  }
  Read(ring);
  if ((mode & 2) != 0) Write(ring);
  return 0;
}
