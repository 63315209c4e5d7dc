// Times single allocations with the clock.
#include "bench/memory_load.hpp"

#include <algorithm>
#include <chrono>
#include <list>
#include <map>
#include <numeric>

#include "base/check.hpp"
#include "base/random.hpp"
#include "bench/paper_device.hpp"
#include "gpu/memory/device_memory.hpp"

namespace troupe::gpu::bench {
namespace {

using Kind = MemoryUser::Kind;
using SteadyClock = std::chrono::steady_clock;

// Well-known networks: their weights, the memory of a run of batch 1 beside them, and a run time that is
// usual on a data-centre GPU.
struct Known {
  Bytes weights;
  Bytes run;
  Duration time;
};
constexpr Duration kMillisecond = std::chrono::milliseconds(1);
constexpr Known kNetworks[] = {
    {Bytes(57'000'000), Bytes(9'000'000), 30 * kMillisecond},    // DenseNet-169
    {Bytes(81'000'000), Bytes(10'000'000), 35 * kMillisecond},   // DenseNet-201
    {Bytes(109'000'000), Bytes(12'000'000), 14 * kMillisecond},  // Inception-v3
    {Bytes(21'000'000), Bytes(10'000'000), 12 * kMillisecond},   // EfficientNet
    {Bytes(102'000'000), Bytes(11'000'000), 9 * kMillisecond},   // ResNet-50
    {Bytes(178'000'000), Bytes(11'000'000), 16 * kMillisecond},  // ResNet-101
    {Bytes(241'000'000), Bytes(11'000'000), 23 * kMillisecond},  // ResNet-152
    {Bytes(440'000'000), Bytes(15'000'000), 12 * kMillisecond},  // BERT-base
};

MemoryOptions OptionsOf(std::string_view variant) {
  MemoryOptions options;
  options.policy = variant;
  return options;
}

// A network with a size of its own: fine-tuned variants differ a little.
Known Pick(Random& random) {
  Known known = kNetworks[random.Below(std::size(kNetworks))];
  known.weights = Bytes(known.weights.count() - random.Below(known.weights.count() / 10));
  return known;
}

}  // namespace

std::vector<double> MeasureChurn(std::string_view variant, Bytes quota, int allocations) {
  PaperDevice device(quota);
  DeviceMemory memory(device, OptionsOf(variant));
  Random random(17);
  std::vector<DeviceRange> models;
  std::vector<DeviceRange> runs;
  std::vector<double> micros;
  while (static_cast<int>(micros.size()) < allocations) {
    const bool run = random.Below(4) > 0;
    const Known known = Pick(random);
    const std::string digest = "model-" + std::to_string(random.Below(1000));
    // The sizes of models: most functions are small.
    const Bytes size = run ? Bytes(1 + random.Below(known.run.count()))
                           : Bytes(known.weights.count() / (random.Below(2) == 0 ? 20 : 1));
    std::vector<DeviceRange>& held = run ? runs : models;
    const auto begin = SteadyClock::now();
    const auto range = memory.Allocate({run ? Kind::kRun : Kind::kWeights, digest}, size);
    micros.push_back(ToMillis(SteadyClock::now() - begin) * 1e3);
    if (range.ok()) held.push_back(*range);
    const bool drop = !range.ok() || runs.size() > 8;
    if (!drop) continue;
    std::vector<DeviceRange>& victims = run && !runs.empty() ? runs : models;
    if (victims.empty()) continue;
    std::swap(victims[random.Below(victims.size())], victims.back());
    memory.Free(victims.back());
    victims.pop_back();
  }
  return micros;
}

RequestTimes MeasureRequests(std::string_view variant, int requests) {
  PaperDevice device(GiB(2));
  DeviceMemory memory(device, OptionsOf(variant));
  Random random(23);
  struct Model {
    std::string digest;
    Known known;
  };
  std::vector<Model> models;
  for (int i = 0; i < 60; ++i) models.push_back({"model-" + std::to_string(i), Pick(random)});
  std::list<std::pair<std::size_t, DeviceRange>> resident;  // the least recently used first
  RequestTimes times;
  for (int i = 0; i < requests; ++i) {
    const std::size_t m = random.Below(models.size());
    const Model& model = models[m];
    const auto begin = SteadyClock::now();
    auto here = std::ranges::find(resident, m, [](const auto& entry) { return entry.first; });
    if (here != resident.end()) resident.splice(resident.end(), resident, here);
    const auto allocate = [&](Kind kind, Bytes size) {
      for (;;) {
        const auto range = memory.Allocate({kind, model.digest}, size);
        if (range.ok()) return *range;
        TROUPE_CHECK(!resident.empty() && resident.front().first != m, "two models fit at once");
        memory.Free(resident.front().second);
        resident.pop_front();
      }
    };
    const bool loads = here == resident.end();
    if (loads) resident.emplace_back(m, allocate(Kind::kWeights, model.known.weights));
    const auto loaded = SteadyClock::now();
    memory.Free(allocate(Kind::kRun, model.known.run));
    const auto end = SteadyClock::now();
    times.shares.push_back(ToSeconds(end - begin) / ToSeconds(model.known.time));
    if (loads) times.loads.push_back(1e6 * ToSeconds(loaded - begin));
    times.runs.push_back(1e6 * ToSeconds(end - loaded));
  }
  return times;
}

double MeasureOverhead(Bytes quota) {
  PaperDevice device(quota);
  DeviceMemory memory(device, OptionsOf(kDefaultMemory));
  const Bytes before = memory.memory().free;
  Random random(29);
  Bytes weights;
  int functions = 0;
  for (; functions < 300; ++functions) {
    // Six in ten models are small.
    Known known = Pick(random);
    if (random.Below(10) < 6) known.weights = Bytes(known.weights.count() / 20);
    const auto range = memory.Allocate({Kind::kWeights, std::to_string(functions)}, known.weights);
    if (!range.ok()) break;
    weights += known.weights;
  }
  TROUPE_CHECK(functions > 0, "a model fits");
  return static_cast<double>((before - memory.memory().free - weights).count()) / functions;
}

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double Quantile(std::vector<double> values, double quantile) {
  std::ranges::sort(values);
  return values[std::min(values.size() - 1,
                         static_cast<std::size_t>(quantile * static_cast<double>(values.size())))];
}

}  // namespace troupe::gpu::bench
