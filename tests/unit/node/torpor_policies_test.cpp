// Torpor's policies as tables of views and decisions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/random.hpp"
#include "node/scheduling/policies/eviction_policy.hpp"
#include "node/scheduling/policies/gpu_policy.hpp"
#include "node/scheduling/scheduler_types.hpp"
#include "node/scheduling/topology.hpp"

namespace troupe::node::torpor_policies_test {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

// What a GPU offers: by default it is idle and the model fits.
struct Offer {
  GpuIndex gpu = 0;
  bool model = false;
  std::uint32_t in_flight = 0;
  bool usable = true;
  int backlog_ms = 0;
  SwitchLoad use = SwitchLoad::kNone;
  GpuIndex peer = kNoGpu;
  int peer_ms = 0;
  int free_mib = 10;
  int victim = kNothingGoes.tier;  // the tier of the most valuable victim
};
GpuOption OptionOf(const Offer& offer) {
  return {.gpu = offer.gpu,
          .has_model = offer.model,
          .has_slot = offer.usable,
          .fits = offer.usable,
          .in_flight = offer.in_flight,
          .free = MiB(static_cast<std::uint64_t>(offer.free_mib)),
          .victim = {.tier = offer.victim},
          .backlog = milliseconds(offer.backlog_ms),
          .load = milliseconds(offer.model ? 0 : 20),
          .switch_load = offer.use,
          .peer = offer.peer,
          .peer_load = milliseconds(offer.peer_ms)};
}

struct Case {
  const char* what;
  std::vector<Offer> offers;
  GpuVerdict verdict;
  GpuIndex gpu = kNoGpu;
  GpuIndex peer = kNoGpu;
  std::uint32_t concurrency = 1;
};
void Expect(const char* policy, const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    std::vector<GpuOption> options;
    for (const Offer& offer : c.offers) options.push_back(OptionOf(offer));
    const GpuChoice choice =
        FindGpuPolicy(policy)->choose({.options = options, .concurrency = c.concurrency, .home = 1});
    EXPECT_EQ(choice.verdict, c.verdict) << c.what;
    EXPECT_EQ(choice.gpu, c.gpu) << c.what;
    EXPECT_EQ(choice.peer, c.peer) << c.what;
  }
}

constexpr auto kLight = SwitchLoad::kLight;
constexpr auto kHeavy = SwitchLoad::kHeavy;

TEST(InterferenceAware, AlgorithmOne) {
  Expect("interference-aware",
         {
             {"no GPU", {}, GpuVerdict::kBlocked},
             {"line 7: an idle GPU that has it",
              {{.gpu = 0, .peer = 1, .peer_ms = 1}, {.gpu = 1, .model = true}},
              GpuVerdict::kRun,
              1},
             {"line 10: the holder is busy, the fastest link",
              {{.gpu = 0, .model = true, .in_flight = 1, .backlog_ms = 1},
               {.gpu = 1, .peer = 0, .peer_ms = 4},
               {.gpu = 2, .peer = 0, .peer_ms = 2},
               {.gpu = 3}},
              GpuVerdict::kRun,
              2,
              0},
             {"line 10: among idle GPUs only",
              {{.gpu = 0, .model = true, .in_flight = 2, .usable = false},
               {.gpu = 1, .in_flight = 1, .peer = 0, .peer_ms = 1},
               {.gpu = 2, .peer = 0, .peer_ms = 2}},
              GpuVerdict::kRun,
              2,
              0},
             {"line 10: of links as fast the one where a replica goes",
              {{.gpu = 0, .model = true, .in_flight = 1, .backlog_ms = 1},
               {.gpu = 1, .peer = 0, .peer_ms = 2, .victim = 2},
               {.gpu = 2, .peer = 0, .peer_ms = 2, .victim = 0}},
              GpuVerdict::kRun,
              2,
              0},
             {"line 13: of free switches the one where a replica goes, though less is free there",
              {{.gpu = 0, .free_mib = 90, .victim = 4}, {.gpu = 1, .victim = 0}, {.gpu = 2, .victim = 2}},
              GpuVerdict::kRun,
              1},
             {"line 13: a free switch before a better victim",
              {{.gpu = 0, .use = kLight}, {.gpu = 1, .victim = 4}},
              GpuVerdict::kRun,
              1},
             {"line 13: no neighbour is loading",
              {{.gpu = 0, .use = kLight, .free_mib = 90}, {.gpu = 1, .use = kHeavy}, {.gpu = 2}},
              GpuVerdict::kRun,
              2},
             {"line 15: a neighbour is loading a light model",
              {{.gpu = 0, .use = kHeavy, .free_mib = 90}, {.gpu = 1, .use = kLight}},
              GpuVerdict::kRun,
              1},
             {"line 17: any; the one with most room",
              {{.gpu = 0, .use = kHeavy}, {.gpu = 1, .use = kHeavy, .free_mib = 20}},
              GpuVerdict::kRun,
              1},
             {"no GPU is idle: the holder's model is there for the next",
              {{.gpu = 0, .in_flight = 1, .backlog_ms = 1},
               {.gpu = 1, .model = true, .in_flight = 1, .backlog_ms = 9}},
              GpuVerdict::kRun,
              1},
             {"no GPU is idle: swap ahead behind the free switch",
              {{.gpu = 0, .in_flight = 1, .use = kLight}, {.gpu = 1, .in_flight = 1}},
              GpuVerdict::kRun,
              1},
             {"two run at a time: the second one is idle enough",
              {{.gpu = 0, .model = true, .in_flight = 1}, {.gpu = 1, .peer = 0, .peer_ms = 1}},
              GpuVerdict::kRun,
              0,
              kNoGpu,
              2},
             {"no link: the busy holder is sooner than a load",
              {{.gpu = 0, .model = true, .in_flight = 1, .backlog_ms = 19}, {.gpu = 1}},
              GpuVerdict::kRun,
              0},
             {"no link: wait for a full holder",
              {{.gpu = 0, .model = true, .in_flight = 2, .usable = false, .backlog_ms = 19}, {.gpu = 1}},
              GpuVerdict::kWait,
              0},
             {"no link: the load is sooner",
              {{.gpu = 0, .model = true, .in_flight = 1, .backlog_ms = 21}, {.gpu = 1}},
              GpuVerdict::kRun,
              1},
             {"all full: queue", {{.gpu = 0, .in_flight = 2, .usable = false}}, GpuVerdict::kBlocked},
         });
}

TEST(RandomGpu, HitsThenLots) {
  Expect("random",
         {
             {"no GPU", {}, GpuVerdict::kBlocked},
             {"a hit is no lot", {{.gpu = 0}, {.gpu = 1, .model = true}, {.gpu = 2}}, GpuVerdict::kRun, 1},
             {"idle before busy, from the host",
              {{.gpu = 0, .in_flight = 1}, {.gpu = 1, .model = true, .in_flight = 1}, {.gpu = 2, .peer = 1}},
              GpuVerdict::kRun,
              2},
         });
  const std::vector<GpuOption> options = {OptionOf({.gpu = 0}), OptionOf({.gpu = 1}), OptionOf({.gpu = 2})};
  std::set<GpuIndex> drawn;
  for (std::uint64_t draw = 0; draw < 9; ++draw)
    drawn.insert(FindGpuPolicy("random")->choose({.options = options, .draw = draw}).gpu);
  EXPECT_EQ(drawn.size(), 3u);
}

TEST(Bound, OneGpuOrNone) {  // home is GPU 1
  EXPECT_TRUE(FindGpuPolicy("bound")->early_binding);
  Expect("bound",
         {
             {"the home", {{.gpu = 0, .model = true}, {.gpu = 1}}, GpuVerdict::kRun, 1},
             {"wait for it", {{.gpu = 0}, {.gpu = 1, .model = true, .usable = false}}, GpuVerdict::kWait, 1},
             {"no room there now", {{.gpu = 0}, {.gpu = 1, .usable = false}}, GpuVerdict::kBlocked},
             {"its worker is down", {{.gpu = 0}}, GpuVerdict::kBlocked},
         });
}

TEST(HeavinessAware, ReplicasThenLightThenMedianThenHeavyModels) {
  const EvictionPolicy policy = *FindEvictionPolicy("heaviness-aware");
  enum Weight { kLight, kMedian, kHeavy };  // a swap slows a run of 10 ms by 1, 8 or 11 ms
  const auto rank = [&](int used_ms, Weight weight, std::uint32_t replicas, bool wanted = false) {
    const int delay = weight == kLight ? 1 : weight == kMedian ? 8 : 11;
    return policy({.last_use = Time(milliseconds(used_ms)),
                   .replicas = replicas,
                   .wanted = wanted,
                   .heavy = weight != kLight,
                   .delay = milliseconds(delay),
                   .run = milliseconds(10)});
  };
  EXPECT_LT(rank(9, kHeavy, 2), rank(1, kHeavy, 1));  // the last replica stays
  EXPECT_LT(rank(9, kHeavy, 2), rank(1, kLight, 1));  // that of a light model, too
  EXPECT_LT(rank(9, kHeavy, 2, true),
            rank(1, kLight, 1));  // also when a request waits for it, since it has two replicas
  EXPECT_LT(rank(9, kLight, 1), rank(1, kMedian, 1));
  EXPECT_LT(rank(9, kMedian, 1), rank(1, kHeavy, 1));
  EXPECT_LT(rank(1, kHeavy, 2), rank(2, kLight, 3));  // within a class the order is LRU
  for (const Weight weight : {kLight, kMedian, kHeavy}) EXPECT_LT(rank(1, weight, 1), rank(2, weight, 1));
  EXPECT_LT(rank(9, kLight, 1), rank(1, kLight, 1, true));
  EXPECT_LT(rank(1, kLight, 1, true),
            rank(1, kMedian, 1));  // the class counts more than a request that waits
}

TEST(HeavinessAware, PropertyNoOnlyCopyGoesBeforeAReplica) {
  const EvictionPolicy policy = *FindEvictionPolicy("heaviness-aware");
  Random random(5);
  const auto draw = [&] {
    return EvictionCandidate{.bytes = MiB(1 + random.Below(1000)),
                             .last_use = Time(milliseconds(random.Below(1000))),
                             .replicas = static_cast<std::uint32_t>(1 + random.Below(3)),
                             .wanted = random.Below(2) == 0,
                             .heavy = random.Below(2) == 0,
                             .delay = milliseconds(random.Below(20)),
                             .run = milliseconds(1 + random.Below(20))};
  };
  const auto kind = [](const EvictionCandidate& candidate) {
    if (candidate.replicas > 1) return 0;
    if (!candidate.heavy) return 1;
    return candidate.delay <= candidate.run ? 2 : 3;
  };
  for (int i = 0; i < 10'000; ++i) {
    const EvictionCandidate a = draw();
    const EvictionCandidate b = draw();
    if (kind(a) < kind(b)) {
      EXPECT_LT(policy(a), policy(b)) << "draw " << i;
    } else if (kind(a) == kind(b) && a.wanted == b.wanted && a.last_use < b.last_use) {
      EXPECT_LT(policy(a), policy(b)) << "draw " << i;
    }
  }
}

TEST(Topology, SwitchesAndLinks) {
  const Topology torpor = *Topology::Parse("v100x4");
  EXPECT_TRUE(torpor.ShareSwitch(0, 1) && torpor.ShareSwitch(3, 2));
  EXPECT_FALSE(torpor.ShareSwitch(0, 2) || torpor.ShareSwitch(1, 1));
  EXPECT_EQ(torpor.Switches(), (std::vector<std::vector<GpuIndex>>{{0, 1}, {2, 3}}));
  EXPECT_EQ(torpor.PeerLink(0, 3)->value, 50e9);
  EXPECT_EQ(torpor.PeerLink(3, 1)->value, 25e9);
  EXPECT_FALSE(torpor.PeerLink(2, 2).has_value());
  EXPECT_TRUE(torpor.Check(4).ok());
  EXPECT_THAT(std::string(torpor.Check(3).message()), HasSubstr("GPU 3"));
  for (const char* text : {"", "none", " , "}) {
    EXPECT_TRUE(Topology::Parse(text)->empty()) << text;
    EXPECT_TRUE(Topology::Parse(text)->Check(0).ok());
  }
  const Topology mine = *Topology::Parse("switch:0-1-2, link:7-0=1.5GB");
  EXPECT_TRUE(mine.ShareSwitch(2, 0));
  EXPECT_EQ(mine.PeerLink(0, 7)->value, 1.5e9);
  EXPECT_FALSE(mine.PeerLink(0, 1).has_value());
  for (const char* text :
       {"switch", "switch:", "switch:0", "switch:0-0", "switch:0-1,switch:1-2", "switch:0-x", "switch:0-4096",
        "switch:-1-2", "link:0-1", "link:0-1=", "link:0-1=fast", "link:0-1=0", "link:0-1-2=1GB",
        "link:0-0=1GB", "link:0-1=1GB,link:1-0=2GB", "link:0-1=1GB=2GB", "bus:0-1", "v100x4,none"}) {
    EXPECT_EQ(Topology::Parse(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(Presets, OfTorporAreComplete) {
  for (const auto& preset : Presets()) EXPECT_TRUE(FindSchedulerPolicies(preset.policy).ok()) << preset.name;
  const PolicyNames torpor = *FindPreset("torpor");
  EXPECT_EQ(torpor.ordering, "slo-aware");
  EXPECT_EQ(torpor.gpu, "interference-aware");
  EXPECT_EQ(torpor.eviction, "heaviness-aware");
  // Each ablation of Torpor differs from it in one slot.
  EXPECT_EQ(FindPreset("torpor-fifo")->ordering, "fifo");
  EXPECT_EQ(FindPreset("torpor-fifo")->gpu, torpor.gpu);
  EXPECT_EQ(FindPreset("torpor-random")->gpu, "random");
  EXPECT_EQ(FindPreset("torpor-random")->eviction, torpor.eviction);
  EXPECT_EQ(FindPreset("torpor-lru")->eviction, "lru");
  EXPECT_EQ(FindPreset("torpor-lru")->ordering, torpor.ordering);
}

}  // namespace
}  // namespace troupe::node::torpor_policies_test
