// What it costs to leave a tensor on its GPU and to read it there: the store's own work, without the run that computes it.
#include <benchmark/benchmark.h>

#include <memory>

#include "base/check.hpp"
#include "gpu/device/virtual_device.hpp"
#include "gpu/memory/device_memory.hpp"
#include "gpu/swap/device_links.hpp"
#include "gpu/worker/task_queue.hpp"
#include "gpu/worker/tensor_store.hpp"
#include "transport/memory_file.hpp"

namespace troupe::gpu {
namespace {

// Of this many tensors that are kept already; the argument is the size of each in bytes.
constexpr std::uint64_t kKept = 100;

void PutGet(benchmark::State& state) {
  const Bytes size(static_cast<std::uint64_t>(state.range(0)));
  auto queue = *TaskQueue::Create();
  auto file = *transport::MemoryFile::Create("device", Bytes(3 * kKept * size.count()));
  VirtualDeviceOptions options;
  options.timed = ComputeProfile();  // nothing is computed here
  const auto device = *MakeVirtualDevice(std::move(options), std::move(file), nullptr);
  SwapOptions swap;
  swap.group = MiB(2);  // not probed: nothing comes over the link here
  DeviceLinks links(*device, swap);
  DeviceMemory memory(*device, {});
  TensorStore store(memory, *queue, links, {});
  const auto put = [&](std::uint64_t number) {
    const auto range = store.Reserve("bench", size);
    TROUPE_CHECK(range.has_value(), "the device has room for it");
    TROUPE_CHECK(store.Keep(number, *range, size, nullptr).ok(), "the number is free");
  };
  for (std::uint64_t number = 1; number <= kKept; ++number) put(number);
  std::uint64_t number = kKept;
  for (auto _ : state) {
    put(++number);
    const auto input = store.Use({number, Bytes(0), size});
    TROUPE_CHECK(input.ok() && input->on_device, "it is where it was put");
    benchmark::DoNotOptimize(input->on_device->address);
    store.Leave(number);
    store.Drop(number - kKept);  // as a run that has ended
  }
  state.counters["copied_bytes"] = static_cast<double>(store.bytes_out().count());
}
BENCHMARK(PutGet)->Arg(256 << 10)->Arg(4 << 20);

}  // namespace
}  // namespace troupe::gpu

BENCHMARK_MAIN();
