// What the probe asks of memory: the GPU's, and the host's.
#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gpu/cuda/green_contexts.hpp"
#include "gpu/cuda/host_pins.hpp"
#include "gpu/cuda/memory.hpp"
#include "gpu/cuda/probe_parts.hpp"
#include "transport/memory_file.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu::cuda {
namespace {

using transport::SteadyNow;

constexpr Bytes kRegistered = MiB(64);  // of the host
constexpr int kUnits = 16;
// As far from what a process has for itself as the addresses of models are.
constexpr std::uint64_t kAddress = std::uint64_t{1} << 45;

}  // namespace

Bytes MemoryLeft::Taken() {
  std::size_t free = 0;
  std::size_t total = 0;
  context_.Enter();
  if (context_.driver().cuMemGetInfo(&free, &total) != CUDA_SUCCESS) return {};
  const Bytes before = std::exchange(free_, Bytes(free));
  total_ = Bytes(total);
  return before > free_ ? before - free_ : Bytes(0);
}

void ProbeUnits(Context& context, Probed& probed) {
  const Driver& driver = context.driver();
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = context.device();
  std::size_t least = 0;
  std::size_t unit = 0;
  (void)driver.cuMemGetAllocationGranularity(&least, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  if (driver.cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) !=
      CUDA_SUCCESS)
    return;
  Say(probed, "units", "granularity",
      absl::StrCat(FormatBytes(Bytes(unit)), ", at least ", FormatBytes(Bytes(least))));
  std::vector<UnitHandle> units;
  const Time begin = SteadyNow();
  for (int i = 0; i < kUnits; ++i) {
    UnitHandle handle = 0;
    if (driver.cuMemCreate(&handle, unit, &properties, 0) != CUDA_SUCCESS) break;
    units.push_back(handle);
  }
  const Time made = SteadyNow();
  if (!units.empty()) {
    Say(probed, "units", "made, each", Milliseconds((made - begin) / static_cast<int>(units.size())));
    Time mapped_at = made;
    {
      const auto mapped = MappedUnits::Map(context, 0, Bytes(unit), units);
      mapped_at = SteadyNow();
      Say(probed, "units", "mapped with access, each",
          mapped.ok() ? Milliseconds((mapped_at - made) / static_cast<int>(units.size()))
                      : std::string(mapped.status().message()));
    }
    Say(probed, "units", "unmapped, each",
        Milliseconds((SteadyNow() - mapped_at) / static_cast<int>(units.size())));
  }
  for (const UnitHandle handle : units) (void)driver.cuMemRelease(handle);
}

void ProbeHostMemory(Context& context, Probed& probed) {
  const Driver& driver = context.driver();
  const auto file = transport::MemoryFile::Create("troupe-probe", kRegistered);
  if (!file.ok()) return Say(probed, "host memory", "a file of memory", std::string(file.status().message()));
  std::memset(file->data(), 1, file->size().count());
  const auto gibibyte = [](Duration took) {
    return absl::StrFormat("%.3f s for a GiB", ToSeconds(took) * static_cast<double>(GiB(1).count()) /
                                                   static_cast<double>(kRegistered.count()));
  };
  const auto registers = [&](const char* name, std::byte* memory, unsigned flags) {
    const Time begin = SteadyNow();
    const CUresult result =
        driver.cuMemHostRegister(memory, kRegistered.count(), CU_MEMHOSTREGISTER_PORTABLE | flags);
    const Duration took = SteadyNow() - begin;
    if (result == CUDA_SUCCESS) (void)driver.cuMemHostUnregister(memory);
    Say(probed, "host memory", name, result == CUDA_SUCCESS ? gibibyte(took) : driver.Describe(result));
  };
  registers("mapped for writing", file->data(), 0);
  const auto view = transport::MemoryFile::Open(transport::UniqueFd(fcntl(file->fd(), F_DUPFD_CLOEXEC, 0)),
                                                transport::MemoryFile::Access::kReadOnly);
  if (!view.ok()) return;
  registers("mapped for reading", view->data(), 0);
  registers("mapped for reading, as read-only", view->data(), CU_MEMHOSTREGISTER_READ_ONLY);
  HostPins pins(context);
  const Time begin = SteadyNow();
  const absl::Status pinned = pins.Register(view->bytes());
  Say(probed, "host memory", "as a worker does it",
      pinned.ok() ? gibibyte(SteadyNow() - begin) : std::string(pinned.message()));
  pins.Unregister(view->bytes());
  std::string why;
  const HostPins::Way way = HostPins::WayOfRegions(context, why);
  probed.uses.push_back(
      absl::StrCat("Models are registered ", cuda::Describe(way), why.empty() ? "" : ": ", why, "."));
}

void ProbeAddresses(Context& context, Probed& probed) {
  const Driver& driver = context.driver();
  int given = 0;
  constexpr int kTries = 8;
  for (int i = 0; i < kTries; ++i) {
    const std::uint64_t wanted = kAddress + GiB(64).count() * static_cast<std::uint64_t>(i);
    CUdeviceptr address = 0;
    if (driver.cuMemAddressReserve(&address, MiB(64).count(), 0, wanted, 0) != CUDA_SUCCESS) continue;
    given += address == wanted ? 1 : 0;
    (void)driver.cuMemAddressFree(address, MiB(64).count());
  }
  Say(probed, "addresses", "given where they were asked for", absl::StrCat(given, " of ", kTries));
  probed.uses.push_back(
      given == kTries ? "Models can be mapped to one address on every GPU (--addresses mapped)."
                      : "Models mapped to addresses of their own are put elsewhere where one is not given.");
}

void ProbePlace(Context& context, Probed& probed) {
  const auto shares = GreenContexts::Make(context);
  const ShareLadder& ladder = shares->ladder();
  if (ladder.units() < 2) return;
  MemoryLeft left(context);
  const Time begin = SteadyNow();
  const auto place = shares->PlaceOf({.begin = 1, .units = 1, .sms = ladder.unit(), .of = ladder.sms()});
  const Duration took = SteadyNow() - begin;
  Say(probed, "shares", "a place of one",
      place.ok() ? absl::StrCat(FormatBytes(left.Taken()), " in ", Milliseconds(took))
                 : std::string(place.status().message()));
}

}  // namespace troupe::gpu::cuda
