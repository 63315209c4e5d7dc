#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "node/requests/credit_ledger.hpp"
#include "node/scheduling/policies/eviction_policy.hpp"
#include "node/scheduling/policies/gpu_policy.hpp"

namespace troupe::node::policies_test {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

GpuOption Option(GpuIndex gpu, bool has_model, bool usable, std::uint32_t in_flight, int free_mib,
                 int backlog_ms, int load_ms) {
  return {.gpu = gpu,
          .has_model = has_model,
          .has_slot = usable,
          .fits = usable,
          .in_flight = in_flight,
          .free = MiB(static_cast<std::uint64_t>(free_mib)),
          .backlog = milliseconds(backlog_ms),
          .load = milliseconds(load_ms)};
}

TEST(GpuPolicy, Choices) {
  struct Case {
    const char* what;
    const char* policy;
    std::vector<GpuOption> options;
    GpuVerdict verdict;
    GpuIndex gpu;
  };
  const Case cases[] = {
      {"no GPU", "resident-first", {}, GpuVerdict::kBlocked, kNoGpu},
      {"an idle resident",
       "resident-first",
       {Option(0, false, true, 0, 90, 0, 5), Option(1, true, true, 0, 10, 0, 0)},
       GpuVerdict::kRun,
       1},
      {"the emptiest",
       "resident-first",
       {Option(0, false, true, 0, 10, 0, 5), Option(1, false, true, 0, 90, 0, 5)},
       GpuVerdict::kRun,
       1},
      {"idle before emptier",
       "resident-first",
       {Option(0, false, true, 1, 90, 9, 5), Option(1, false, true, 0, 10, 0, 5)},
       GpuVerdict::kRun,
       1},
      {"a busy resident that is sooner",
       "resident-first",
       {Option(0, true, true, 1, 0, 4, 0), Option(1, false, true, 0, 90, 0, 5)},
       GpuVerdict::kRun,
       0},
      {"loading is sooner",
       "resident-first",
       {Option(0, true, true, 1, 0, 6, 0), Option(1, false, true, 0, 90, 0, 5)},
       GpuVerdict::kRun,
       1},
      {"wait for a full one",
       "resident-first",
       {Option(0, true, false, 2, 0, 4, 0), Option(1, false, true, 0, 90, 0, 5)},
       GpuVerdict::kWait,
       0},
      {"do not wait",
       "resident-first",
       {Option(0, true, false, 2, 0, 9, 0), Option(1, false, true, 0, 90, 0, 5)},
       GpuVerdict::kRun,
       1},
      {"wait, nothing else",
       "resident-first",
       {Option(0, true, false, 2, 0, 99, 0), Option(1, false, false, 2, 0, 1, 5)},
       GpuVerdict::kWait,
       0},
      {"all full", "resident-first", {Option(0, false, false, 2, 0, 4, 5)}, GpuVerdict::kBlocked, kNoGpu},
      {"least busy",
       "most-free",
       {Option(0, true, true, 1, 90, 4, 0), Option(1, false, true, 0, 10, 0, 5)},
       GpuVerdict::kRun,
       1},
      {"most free",
       "most-free",
       {Option(0, true, true, 0, 10, 0, 0), Option(1, false, true, 0, 90, 0, 5)},
       GpuVerdict::kRun,
       1},
      {"a tie",
       "most-free",
       {Option(0, false, true, 0, 10, 0, 5), Option(1, true, true, 0, 10, 0, 0)},
       GpuVerdict::kRun,
       1},
      {"none", "most-free", {Option(0, true, false, 2, 10, 0, 0)}, GpuVerdict::kBlocked, kNoGpu},
  };
  for (const Case& c : cases) {
    const GpuChoice choice = FindGpuPolicy(c.policy)->choose({.options = c.options});
    EXPECT_EQ(choice.verdict, c.verdict) << c.what;
    EXPECT_EQ(choice.gpu, c.gpu) << c.what;
  }
  EXPECT_THAT(std::string(FindGpuPolicy("best").status().message()), HasSubstr("resident-first, least-cost"));
}

TEST(EvictionPolicy, LeastRecentlyUsedAndWantedOnesLast) {
  const EvictionPolicy lru = *FindEvictionPolicy("lru");
  const auto rank = [&](int ms, bool wanted) {
    return lru({.last_use = Time(milliseconds(ms)), .wanted = wanted});
  };
  EXPECT_LT(rank(1, false), rank(2, false));
  EXPECT_LT(rank(9, false), rank(1, true));
  EXPECT_EQ(FindEvictionPolicy("mru").status().code(), absl::StatusCode::kNotFound);
}

TEST(CreditLedger, Splits) {
  struct Case {
    std::uint64_t capacity;
    std::vector<std::uint64_t> demands;
    std::vector<std::uint64_t> limits;
  };
  const Case cases[] = {
      {8, {}, {}},
      {8, {0}, {8}},
      {8, {0, 0}, {4, 4}},
      {8, {100, 0}, {7, 1}},
      {8, {30, 10}, {6, 2}},
      {0, {5, 5}, {0, 0}},
      {2, {1, 5, 3}, {0, 1, 1}},
      {3, {9, 0, 0}, {1, 1, 1}},
      {7, {1, 1, 1}, {3, 2, 2}},
      {1, {0, 0}, {1, 0}},
  };
  for (const Case& c : cases) {
    std::vector<RouterDemand> demands;
    for (std::size_t i = 0; i < c.demands.size(); ++i) demands.push_back({i + 1, c.demands[i]});
    std::vector<std::uint64_t> limits;
    std::uint64_t sum = 0;
    for (const Grant& grant : SplitCredits(c.capacity, demands)) {
      limits.push_back(grant.limit);
      sum += grant.limit;
    }
    EXPECT_EQ(limits, c.limits) << c.capacity;
    EXPECT_EQ(sum, c.demands.empty() ? 0 : c.capacity);
  }
}

TEST(CreditLedger, TakesReturnsAndTellsOnlyWhatChanged) {
  CreditLedger ledger;
  ledger.SetCapacity(4);
  EXPECT_FALSE(ledger.Take(1));
  ledger.Report(1, 0);
  EXPECT_THAT(ledger.Regrant(), ElementsAre(Grant{1, 4}));
  EXPECT_TRUE(ledger.Regrant().empty());
  EXPECT_THAT(ledger.Regrant(1), ElementsAre(Grant{1, 4}));
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(ledger.Take(1));
  EXPECT_FALSE(ledger.Take(1));
  ledger.Report(2, 4);
  EXPECT_THAT(ledger.Regrant(), ElementsAre(Grant{1, 2}, Grant{2, 2}));
  EXPECT_FALSE(ledger.Take(1));  // the router has more requests in flight than it may
  EXPECT_TRUE(ledger.Take(2));
  ledger.Return(1);
  ledger.Return(1);
  ledger.Return(1);
  EXPECT_TRUE(ledger.Take(1));
  ledger.Forget(1);
  ledger.Return(1);  // one of its two requests in flight returns
  EXPECT_EQ(ledger.in_flight(1), 1u);
  EXPECT_THAT(ledger.Regrant(), ElementsAre(Grant{2, 4}));
  ledger.SetCapacity(0);  // draining
  EXPECT_THAT(ledger.Regrant(), ElementsAre(Grant{2, 0}));
  EXPECT_FALSE(ledger.Take(2));
}

// The requests that the router sent before are still under way when it has connected again.
TEST(CreditLedger, ARouterThatComesBackHasInFlightWhatItHad) {
  CreditLedger ledger;
  ledger.SetCapacity(2);
  ledger.Report(1, 0);
  EXPECT_THAT(ledger.Regrant(), ElementsAre(Grant{1, 2}));
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(ledger.Take(1));
  ledger.Forget(1);
  EXPECT_TRUE(ledger.Regrant().empty()) << "no router is left that could be told";
  EXPECT_FALSE(ledger.Take(1));
  ledger.Report(1, 0);
  EXPECT_THAT(ledger.Regrant(), ElementsAre(Grant{1, 2}));
  EXPECT_FALSE(ledger.Take(1));
  ledger.Return(1);
  EXPECT_TRUE(ledger.Take(1));
  for (int i = 0; i < 2; ++i) ledger.Return(1);
  EXPECT_EQ(ledger.in_flight(1), 0u);
}

}  // namespace
}  // namespace troupe::node::policies_test
