// The device memory that functions take: as many functions in one worker as in a process each.
#include "bench/device_bed.hpp"

namespace troupe::gpu::bench {
namespace {

void BringAndRun(Rig& rig, const HostedModel& model) {
  (void)rig.Ask(model.prepare);
  (void)rig.Ask(SwapInOf(model.copy));
  // Runs until graphs, which take device memory too, are recorded and replayed.
  for (int i = 0; i < 3; ++i) (void)rig.Ask(model.run);
}

Bytes UsedOf(Rig& rig) {
  proto::WorkerOrder describe;
  describe.mutable_describe();
  const auto description = rig.Ask(describe).description();
  return Bytes(description.memory_bytes()) - Bytes(description.free_bytes());
}

}  // namespace

// The script samples the device's own count of used memory, which includes contexts and libraries.
void MeasureMemory(Bed& bed) {
  const Network& network = bed.networks().front();
  const std::size_t functions = bed.options().together;
  const Bytes weights(network.model.weights);
  const Bytes run = bed.ActivationsOf(network) * 2 + MiB(16);
  Say("memory_functions", static_cast<double>(functions));
  Sample("memory/before");
  {
    const auto rig = bed.Start({}, (weights + MiB(2)) * functions + run);
    Bytes before;
    for (std::size_t i = 0; i < functions; ++i) {
      BringAndRun(*rig, network.model.As(absl::StrCat("function-", i)));
      const Bytes used = UsedOf(*rig);
      if (i > 0) {
        const double more = static_cast<double>(used.count()) - static_cast<double>(before.count());
        Say("extra_function_beyond_weights_bytes", more - static_cast<double>(weights.count()));
      }
      before = used;
      if (i == 0) Sample("memory/first_function");
    }
    Sample("memory/one_runtime");
  }
  if (!bed.real()) return Note("a process each: a virtual GPU has no contexts that cost memory");
  std::vector<std::unique_ptr<Rig>> rigs;
  for (std::size_t i = 0; i < functions; ++i) {
    rigs.push_back(bed.Start({}, weights + MiB(2) + run));
    BringAndRun(*rigs.back(), network.model);
  }
  Sample("memory/process_each");
}

}  // namespace troupe::gpu::bench
