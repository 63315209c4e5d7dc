// Functions beside each other on one device: with shares of its SMs, and racing.
#include <map>

#include "bench/device_bed.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu::bench {
namespace {

using transport::SteadyNow;

constexpr std::uint32_t kFastShare = 12;  // percent; each of FaST-GShare's eight pods has this share

struct Instance {
  HostedModel model;
  std::uint32_t share = 0;  // percent of the SMs; 0: all that are free
};

struct Load {
  double rate = 0;                         // runs per second of all instances together
  double busy = 0;                         // percent of the time in which the device computed
  std::vector<std::vector<double>> times;  // ms of each instance's runs
};

std::int64_t BusyOf(Rig& rig) {
  proto::WorkerOrder describe;
  describe.mutable_describe();
  return rig.Ask(describe).description().busy_ns();
}

// Closed loop: each instance has `depth` runs under way for `seconds`.
Load Drive(Rig& rig, const std::vector<Instance>& instances, std::size_t depth, double seconds) {
  std::map<std::uint64_t, std::size_t> under_way;
  Load load;
  load.times.resize(instances.size());
  const auto send = [&](std::size_t i) {
    proto::WorkerOrder order = instances[i].model.run;
    order.mutable_run()->mutable_sharing()->set_sm_partition(instances[i].share);
    under_way[rig.Send(std::move(order))] = i;
  };
  const std::int64_t busy = BusyOf(rig);
  const Time begin = SteadyNow();
  for (std::size_t k = 0; k < depth; ++k) {
    for (std::size_t i = 0; i < instances.size(); ++i) send(i);
  }
  std::size_t done = 0;
  while (!under_way.empty()) {
    const proto::WorkerOutcome outcome = rig.AwaitAny();
    const std::size_t instance = under_way.extract(outcome.sequence()).mapped();
    load.times[instance].push_back(Took(outcome));
    ++done;
    if (ToSeconds(SteadyNow() - begin) < seconds) send(instance);
  }
  const double took = ToSeconds(SteadyNow() - begin);
  load.rate = static_cast<double>(done) / took;
  load.busy = static_cast<double>(BusyOf(rig) - busy) * 1e-7 / took;
  return load;
}

std::vector<Instance> Take(const std::vector<Instance>& all, std::size_t count, std::uint32_t share) {
  std::vector<Instance> some(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count));
  for (Instance& instance : some) instance.share = share;
  return some;
}

// Measures one function alone with each share that the device has.
void MeasureLadder(Bed& bed, Rig& rig, const std::vector<Instance>& all, const std::string& at) {
  const proto::WorkerDescription& device = rig.description();
  const double window = bed.options().window / 4;
  const double whole = Median(Drive(rig, Take(all, 1, 0), 1, window).times[0]);
  for (const std::uint32_t sms : device.share_sms()) {
    const auto percent = std::max(1U, 100 * sms / device.sms());
    Say(absl::StrCat("share_latency_ms", at, "/sms=", sms),
        Median(Drive(rig, Take(all, 1, percent), 1, window).times[0]), whole);
  }
}

// Measures two functions side by side, with half of the SMs each and without shares; each is compared with
// itself alone.
void MeasureNeighbours(Bed& bed, Rig& rig, const std::vector<Instance>& all, const std::string& at) {
  for (int round = 0; round < bed.options().rounds; ++round) {
    for (const auto& [name, share] : {std::pair("shares", 48U), std::pair("racing", 0U)}) {
      if (share > 0 && rig.description().share_sms().empty()) continue;
      const Load alone = Drive(rig, Take(all, 1, share), 1, bed.options().window);
      const Load beside = Drive(rig, Take(all, 2, share), 1, bed.options().window);
      Say(absl::StrCat("neighbour_p98_ms", at, "/", name), Percentile(beside.times[0], 98),
          Percentile(alone.times[0], 98));
    }
  }
}

void MeasureThroughput(Bed& bed, Rig& rig, const std::vector<Instance>& all, const std::string& at) {
  const auto drive = [&](const std::string& name, std::size_t count, std::uint32_t share) {
    Sample(absl::StrCat("begin/", name));
    const Load load = Drive(rig, Take(all, count, share), 2, bed.options().window);
    Sample(absl::StrCat("end/", name));
    Say(absl::StrCat("compute_busy", "/", name), load.busy);
    return load.rate;
  };
  const bool shares = !rig.description().share_sms().empty();
  for (int round = 0; round < bed.options().rounds; ++round) {
    const double one = drive(absl::StrCat("throughput", at, "/racing/instances=1"), 1, 0);
    for (std::size_t count = 2; count <= all.size(); count *= 2) {
      std::string name = absl::StrCat("throughput", at, "/racing/instances=", count);
      Say(name, drive(name, count, 0), one);
    }
    for (std::size_t count = 1; shares && count <= all.size(); count *= 2) {
      std::string name = absl::StrCat("throughput", at, "/share=", kFastShare, "/instances=", count);
      Say(name, drive(name, count, kFastShare), one);
    }
  }
}

void MeasureNetwork(Bed& bed, const Network& network) {
  const std::size_t together = bed.options().together;
  WorkerCommand command;
  command.concurrency = static_cast<std::uint32_t>(together);
  const Bytes each = Bytes(network.model.weights) + MiB(2) + bed.ActivationsOf(network) * 3;
  const auto rig = bed.Start(command, each * together + bed.options().spare);
  std::vector<Instance> all;
  for (std::size_t i = 0; i < together; ++i) {
    all.push_back({network.model.As(absl::StrCat("instance-", i)), 0});
    (void)rig->Ask(all.back().model.prepare);
    (void)rig->Ask(SwapInOf(all.back().model.copy));
    (void)rig->Ask(all.back().model.run);
  }
  const std::string at = absl::StrCat("/", network.name);
  if (rig->description().share_sms().empty())
    Note(absl::StrCat(bed.options().device, " has no shares of SMs: instances race"));
  MeasureLadder(bed, *rig, all, at);
  MeasureNeighbours(bed, *rig, all, at);
  MeasureThroughput(bed, *rig, all, at);
}

}  // namespace

// Measures the first network, and a transformer where there is one.
void MeasureShares(Bed& bed) {
  MeasureNetwork(bed, bed.networks().front());
  for (const Network& network : bed.networks()) {
    if (network.name.starts_with("bert")) return MeasureNetwork(bed, network);
  }
}

}  // namespace troupe::gpu::bench
