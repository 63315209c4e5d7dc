// What the cluster's decisions cost by the number of functions and GPUs: the manager's (sim/experiments/scale_manager.hpp)
// and, of a function without a copy that is asked for, the router's. Wall time of this machine; memory as the allocator
// counts it. Nothing computes, and no message is sent.
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "cluster/request_table.hpp"
#include "sim/experiments/experiment.hpp"
#include "sim/experiments/scale_manager.hpp"

namespace troupe::sim {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint32_t kRepeats = 5;
constexpr std::uint32_t kMostOfARepeat = 200;  // deployments
constexpr std::uint32_t kMostCold = 5000;
constexpr std::uint32_t kColdPulses = 20;  // in which they come
constexpr int kLooks = 10;

double InUse() {
  const auto info = mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd);
}
double Micros(Duration time) {
  return ToSeconds(time) * 1e6;
}

// The figures of one size, under "scale/FUNCTIONS/GPUS-gpus/".
class Measuring {
 public:
  Measuring(const ScaleSize& size, std::vector<Figure>& figures)
      : size_(size), figures_(figures), manager_(size) {}

  void Go() {
    const double empty = InUse();
    Fill();
    Add("memory_bytes", "B", {(InUse() - empty) / size_.functions});
    PulseQuietly();
    PlaceCold();
    Unload();
    Look();
    Join();
  }

 private:
  void Add(const char* quantity, const char* unit, std::vector<double> values) {
    figures_.push_back({.name = absl::StrCat("scale/", size_.functions, "/", size_.gpus, "-gpus/", quantity),
                        .unit = unit,
                        .values = std::move(values)});
  }
  [[nodiscard]] std::uint32_t Cold() const {
    return std::clamp<std::uint32_t>(size_.functions / 10 / kColdPulses, 1, kMostCold / kColdPulses) *
           kColdPulses;
  }

  // The last deployments are measured; those without a copy come after them.
  void Fill() {
    const auto block = std::clamp<std::uint32_t>(size_.functions / 50, 1, kMostOfARepeat);
    manager_.Deploy(size_.functions - block * kRepeats - Cold());
    static_cast<void>(manager_.TakeCounts());
    std::vector<double> micros, bytes, copies;
    for (std::uint32_t i = 0; i < kRepeats; ++i) {
      manager_.Deploy(block);
      const auto counts = manager_.TakeCounts();
      micros.push_back(Micros(counts.spent) / block);
      bytes.push_back(static_cast<double>(counts.update_bytes) / static_cast<double>(counts.updates));
      copies.push_back(static_cast<double>(counts.adoptions) / block);
    }
    Add("deploy_us", "us", std::move(micros));
    Add("deploy_copies", "", std::move(copies));
    Add("update_bytes", "B", std::move(bytes));
    // Each pulse brings as many copies as nodes would be asked for again in one.
    manager_.RefuseCopies(true);
    for (std::uint32_t i = 0; i < kColdPulses; ++i) {
      manager_.Deploy(Cold() / kColdPulses);
      manager_.Pulse(milliseconds(50));
    }
    manager_.RefuseCopies(false);
    manager_.Pulse({});
    static_cast<void>(manager_.TakeCounts());
  }

  void PulseQuietly() {
    std::vector<double> micros;
    for (std::uint32_t i = 0; i < kRepeats; ++i) {
      manager_.Pulse({});
      micros.push_back(Micros(manager_.TakeCounts().spent));
    }
    Add("pulse_us", "us", std::move(micros));
  }

  // The copies that nodes refused are asked for again, and a request for each waits at a router until it has a copy.
  void PlaceCold() {
    static_cast<void>(manager_.TakeCounts());
    for (std::uint32_t i = 0; i < 4 * kColdPulses; ++i) manager_.Pulse(milliseconds(50));
    const auto counts = manager_.TakeCounts();
    const double place = Micros(counts.spent) / Cold();
    const double route = RouteCold();
    Add("cold_place_us", "us", {place});
    Add("cold_route_us", "us", {route});
    Add("cold_per_second", "/s", {1e6 / (place + route)});
    Add("cold_copies", "", {static_cast<double>(counts.adoptions) / Cold()});
    Add("cold_commits", "", {static_cast<double>(counts.commits) / Cold()});
  }

  // Microseconds of a request: it comes, its node tells of the copy, it is sent and answered.
  [[nodiscard]] double RouteCold() const {
    cluster::RequestTable router({.max_requests = kMostCold}, *cluster::FindRoutingPolicy("locality"),
                                 *FindOrderingPolicy("edf"));
    const auto grant_of = [&](std::uint32_t node) {
      proto::CreditGrant grant;
      grant.set_node(absl::StrCat("node-", node));
      grant.set_node_epoch(1);
      grant.set_limit(std::uint64_t{4} * size_.GpusOfNode());
      return grant;
    };
    for (std::uint32_t node = 0; node < size_.nodes(); ++node) router.Apply(grant_of(node));
    const Time now{seconds(100)};
    const auto began = std::chrono::steady_clock::now();
    for (std::uint32_t i = 0; i < Cold(); ++i) {
      cluster::RouterRequest request{
          .sequence = i + 1, .function = absl::StrCat("function-", i), .version = "1"};
      request.model = absl::StrCat("model-", i);
      if (!router.Admit(request, now).status.ok()) return 0;
      static_cast<void>(router.Decide(now));
      auto grant = grant_of(i % size_.nodes());
      grant.mutable_adopted()->set_added(true);
      grant.mutable_adopted()->add_digests(request.model);
      router.Apply(grant);
      for (const auto& send : router.Decide(now))
        static_cast<void>(router.Served(send.ticket, absl::OkStatus(), now, milliseconds(10)));
    }
    const Duration took = std::chrono::steady_clock::now() - began;
    return router.counts().served == Cold() ? Micros(took) / Cold() : 0;
  }

  void Unload() {
    std::vector<double> micros, bytes;
    for (std::uint32_t i = 0; i < kRepeats; ++i) {
      manager_.Unload(size_.functions - 1 - i);
      const auto counts = manager_.TakeCounts();
      micros.push_back(Micros(counts.spent));
      bytes.push_back(static_cast<double>(counts.update_bytes));
    }
    Add("change_us", "us", std::move(micros));
    Add("change_bytes", "B", std::move(bytes));
  }

  // One function in a hundred has requests, and no more functions than there are GPUs.
  void Look() {
    const auto loaded = std::max(1U, std::min(size_.functions / 100, size_.gpus));
    std::vector<double> placing, settled;
    for (int i = 0; i < kLooks; ++i) {
      manager_.TellLoads(loaded);
      static_cast<void>(manager_.TakeCounts());
      manager_.Pulse(seconds(1));
      (i < kLooks / 2 ? placing : settled).push_back(Micros(manager_.TakeCounts().spent) / 1000);
    }
    Add("tick_ms", "ms", std::move(settled));
    Add("tick_placing_ms", "ms", {*std::ranges::max_element(placing)});
    Add("owners", "", {static_cast<double>(manager_.Owners())});
  }

  // Of another node: with the pulses after it and the copies that move to it.
  void Join() {
    manager_.Join();
    manager_.Pulse(milliseconds(50));
    Add("join_pulses", "", {static_cast<double>(1 + manager_.SettleCopies())});
    const auto counts = manager_.TakeCounts();
    Add("join_ms", "ms", {Micros(counts.spent) / 1000});
    Add("join_copies", "", {static_cast<double>(counts.adoptions)});
    Add("join_longest_ms", "ms", {Micros(counts.longest) / 1000});
    const auto& parts = counts.snapshot_bytes;
    Add("snapshot_bytes", "B",
        {static_cast<double>(std::accumulate(parts.begin(), parts.end(), std::uint64_t{0}))});
    Add("snapshot_part_bytes", "B", {static_cast<double>(*std::ranges::max_element(parts))});
  }

  const ScaleSize size_;
  std::vector<Figure>& figures_;
  ScaleManager manager_;
};

}  // namespace

absl::StatusOr<std::vector<Figure>> Scale(const ExperimentOptions& options) {
  const bool given = options.fewest_functions > 0;
  const std::uint64_t fewest = given ? options.fewest_functions : 10'000;
  const std::uint64_t most = given ? options.most_functions : 1'000'000;
  if (fewest < 100)
    return absl::InvalidArgumentError(
        absl::StrCat("--functions: found ", fewest, ", expected 100 at least for this experiment"));
  const auto gpus = options.gpus.empty() ? std::vector<std::uint32_t>{100, 1000, 10'000} : options.gpus;
  std::vector<Figure> figures;
  for (std::uint64_t functions = fewest; functions <= most; functions *= 10)
    for (const std::uint32_t of_gpus : gpus) {
      if (options.go_on && !options.go_on(absl::StrCat(functions, " functions, ", of_gpus, " GPUs")))
        return figures;
      Measuring({.functions = static_cast<std::uint32_t>(functions), .gpus = of_gpus}, figures).Go();
    }
  return figures;
}

}  // namespace troupe::sim
