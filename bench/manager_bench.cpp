// What a pulse of the cluster manager costs in which the autoscaler looks at every function: the production decisions, fed
// with heartbeats by a loop that stands for the members. bench/autoscale.py runs it.
//   manager_bench FUNCTIONS LOADED NODES [LOOKS]    FUNCTIONS that follow their load, of which LOADED have requests
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/digest.hpp"
#include "cluster/cluster.hpp"

namespace troupe::cluster::bench {
namespace {

using WallClock = std::chrono::steady_clock;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr std::uint32_t kGpusOfNode = 8;
constexpr std::uint64_t kRequests = 20;  // a second, of each function that has some
constexpr Duration kRun = std::chrono::milliseconds(10);

std::string NameOf(std::size_t function) {
  return absl::StrCat("function-", function);
}

proto::FunctionRecord FunctionOf(std::size_t number) {
  proto::FunctionRecord record;
  record.mutable_key()->set_name(NameOf(number));
  record.mutable_key()->set_version("1");
  record.set_model_digest(Sha256Hex(absl::StrCat("model ", number)));
  record.set_weights_digest(Sha256Hex(absl::StrCat("weights ", number)));
  record.set_onnx_digest(Sha256Hex(absl::StrCat("onnx ", number)));
  record.set_weights_bytes(MiB(1).count());
  record.set_model_bytes(1000);
  record.set_loaded(true);
  record.mutable_sharing()->set_sm_partition(12);
  record.mutable_sharing()->add_automatic("quota_request");
  return record;
}

class Bench {
 public:
  Bench(std::size_t functions, std::size_t loaded, std::size_t nodes)
      : loaded_(loaded), nodes_(nodes), cluster_(Settings(), *Catalogue::Of(Records(functions), "bench")) {
    On(Started());
    JoinAsked gateway{.ask = 1, .daemon = "g", .gateway = true, .front = 1};
    gateway.join.mutable_member()->set_name("gateway");
    gateway.join.mutable_member()->set_kind(proto::MEMBER_GATEWAY);
    gateway.join.mutable_member()->set_address("gateway");
    On(std::move(gateway));
    for (std::size_t node = 0; node < nodes; ++node) Join(absl::StrCat("node-", node));
    // Copies are made until no more are asked for.
    for (int pulse = 0; pulse < 200; ++pulse) Pulse(std::chrono::milliseconds(50));
  }

  // Of a pulse with a look of the autoscaler.
  double LookMs() {
    TellLoads();
    now_ += seconds(1);
    const auto began = WallClock::now();
    auto effects = cluster_.On(TimerFired{Timer::kPulse}, now_, now_.time_since_epoch().count());
    const std::chrono::duration<double, std::milli> took = WallClock::now() - began;
    CarryOut(std::move(effects));
    return took.count();
  }
  [[nodiscard]] std::size_t Owners() const {
    std::size_t owners = 0;
    const auto& table = cluster_.catalogue().functions().table();
    for (const auto& version : table.scaled()) owners += table.At(version).places_size() > 0 ? 1 : 0;
    return owners;
  }

 private:
  static ClusterSettings Settings() {
    ClusterSettings settings;
    settings.replicas = 2;
    settings.collect_every = std::chrono::hours(1000);
    settings.membership.suspect_after = minutes(500);
    settings.membership.dead_after = minutes(1000);
    settings.scaling.owning = "always";
    return settings;
  }
  static CatalogueRecords Records(std::size_t functions) {
    CatalogueRecords records;
    records.cluster = "bench";
    for (std::size_t i = 0; i < functions; ++i) records.functions.push_back(FunctionOf(i));
    return records;
  }
  void Join(const std::string& name) {
    JoinAsked asked{.ask = 1, .daemon = name};
    auto& member = *asked.join.mutable_member();
    member.set_name(name);
    member.set_kind(proto::MEMBER_NODE);
    member.set_address(name);
    member.set_host_region_bytes(GiB(1000).count());
    for (std::uint32_t i = 0; i < kGpusOfNode; ++i) {
      auto& gpu = *member.add_gpus();
      gpu.set_index(i);
      gpu.set_memory_bytes(GiB(80).count());
      gpu.set_state("ready");
      gpu.set_kind("bench");
    }
    On(std::move(asked));
  }
  void Pulse(Duration passed) {
    now_ += passed;
    On(TimerFired{Timer::kPulse});
  }
  void On(Event event) { CarryOut(cluster_.On(std::move(event), now_, now_.time_since_epoch().count())); }
  // The store and the nodes answer at once.
  void CarryOut(Effects effects) {
    std::vector<Event> answers;
    for (auto& effect : effects) {
      if (const auto* commit = std::get_if<Commit>(&effect))
        answers.emplace_back(Committed{commit->ticket, {}});
      if (const auto* ask = std::get_if<AskAdoption>(&effect))
        answers.emplace_back(
            AdoptionAnswered{ask->digest, ask->node, ask->epoch, ask->function.key().name(), {}});
      if (const auto* joined = std::get_if<Answer<proto::JoinReply>>(&effect))
        epochs_.push_back(joined->reply.epoch());
    }
    for (auto& answer : answers) On(std::move(answer));
  }
  // Each function's requests come through the gateway, and its runs are spread over the nodes.
  void TellLoads() {
    HeartbeatHeard gateway = From("gateway", epochs_.at(0));
    std::vector<HeartbeatHeard> nodes;
    for (std::size_t i = 0; i < nodes_; ++i)
      nodes.push_back(From(absl::StrCat("node-", i), epochs_.at(i + 1)));
    for (std::size_t i = 0; i < loaded_; ++i) {
      Add(gateway, i)->set_arrived(kRequests);
      auto* run = Add(nodes[i % nodes.size()], i);
      run->set_served(kRequests);
      run->set_gpu_ns(kRequests * static_cast<std::uint64_t>(Duration(kRun).count()) * 12 / 100);
    }
    On(std::move(gateway));
    for (auto& node : nodes) On(std::move(node));
  }
  HeartbeatHeard From(const std::string& name, std::uint64_t epoch) {
    HeartbeatHeard heard{.ask = 1};
    heard.heartbeat.set_name(name);
    heard.heartbeat.set_epoch(epoch);
    heard.heartbeat.set_sequence(++heartbeats_);
    return heard;
  }
  static proto::FunctionDemand* Add(HeartbeatHeard& heard, std::size_t function) {
    auto* demand = heard.heartbeat.add_function_demand();
    demand->mutable_key()->set_name(NameOf(function));
    demand->mutable_key()->set_version("1");
    return demand;
  }

  const std::size_t loaded_, nodes_;
  Cluster cluster_;
  Time now_{seconds(100)};
  std::vector<std::uint64_t> epochs_;  // of the members, in the order in which they joined
  std::uint64_t heartbeats_ = 0;
};

int Run(std::size_t functions, std::size_t loaded, std::size_t nodes, int looks) {
  Bench bench(functions, loaded, nodes);
  std::vector<double> took;
  double first = 0;  // of the looks in which most is placed
  for (int i = 0; i < looks; ++i) {
    const double ms = bench.LookMs();
    i < looks / 2 ? static_cast<void>(first = std::max(first, ms)) : took.push_back(ms);
  }
  std::ranges::sort(took);
  std::cout << "{\"look_ms\": " << took[took.size() / 2] << ", \"look_ms_max\": " << took.back()
            << ", \"placing_ms_max\": " << first << ", \"owners\": " << bench.Owners() << "}\n";
  return 0;
}

}  // namespace
}  // namespace troupe::cluster::bench

int main(int argc, char** argv) {
  std::size_t functions = 0, loaded = 0, nodes = 0;
  int looks = 40;
  const bool read = argc >= 4 && absl::SimpleAtoi(argv[1], &functions) &&
                    absl::SimpleAtoi(argv[2], &loaded) && absl::SimpleAtoi(argv[3], &nodes) &&
                    (argc < 5 || absl::SimpleAtoi(argv[4], &looks));
  if (!read || nodes == 0 || loaded > functions || looks < 4) {
    std::cerr
        << "usage: manager_bench FUNCTIONS LOADED NODES [LOOKS]; LOADED at most FUNCTIONS, LOOKS 4 or more\n";
    return 2;
  }
  return troupe::cluster::bench::Run(functions, loaded, nodes, looks);
}
