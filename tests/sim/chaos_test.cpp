// Schedules of faults: the same seed gives the same run, and the checkers find the errors that the harness
// makes on purpose.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "sim/schedules/chaos_command.hpp"

namespace troupe::sim {
namespace {

TEST(Chaos, TheSameSeedGivesTheSameRun) {
  for (const std::uint64_t seed : {3U, 14U}) {
    const auto first = RunSchedule({.seed = seed});
    const auto second = RunSchedule({.seed = seed});
    EXPECT_EQ(first.trace_hash, second.trace_hash);
    EXPECT_EQ(first.requests, second.requests);
    EXPECT_GT(first.served, 0u);
  }
  EXPECT_NE(RunSchedule({.seed = 3}).trace_hash, RunSchedule({.seed = 4}).trace_hash);
}

// The first seed whose schedule this checker finds wrong, and which is good without the error; 0 when there
// is none.
std::uint64_t FoundBy(Planted planted, const std::string& checker) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const auto result = RunSchedule({.seed = seed, .planted = planted});
    const auto spoke = [&](const Broken& broken) { return broken.checker == checker; };
    if (std::none_of(result.broken.begin(), result.broken.end(), spoke)) continue;
    EXPECT_FALSE(result.last_steps.empty());
    EXPECT_TRUE(RunSchedule({.seed = seed}).broken.empty()) << "seed " << seed;
    return seed;
  }
  return 0;
}

class PlantedErrors : public ::testing::TestWithParam<PlantedName> {};

TEST_P(PlantedErrors, AreFoundByTheirChecker) {
  EXPECT_NE(FoundBy(GetParam().planted, std::string(GetParam().checker)), 0U);
}

INSTANTIATE_TEST_SUITE_P(Chaos, PlantedErrors, ::testing::ValuesIn(AllPlanted()), [](const auto& info) {
  std::string name(info.param.name);
  std::erase(name, '-');
  return name;
});

// Of ten thousand seeds these found errors: a credit that came back twice (2777), an answer for an earlier
// life of a model (2347), a step that was committed under a later claim (4287), an owner that did not learn
// of its successor (6510), an operator that gave up taking nodes back before it was connected again (2653), a
// credit of a request that ended before it was sent (617, 2222), a plan that outlived its model (1162), and a runtime
// that was kept for a request behind another one of its model, and taken for neither (564). What the
// others found is told in docs/experiments.md.
TEST(Chaos, SeedsThatFoundSomethingStayGood) {
  for (const std::uint64_t seed :
       {59U,     564U,    617U,    1162U,   2222U,   2347U,   2596U, 2639U,   2641U,   2653U,   2704U,
        2777U,   3000U,   3449U,   4203U,   4287U,   6510U,   6934U, 10'019U, 10'163U, 10'477U, 12'946U,
        16'653U, 17'863U, 24'958U, 26'734U, 31'046U, 34'162U, 574U,  1824U,   2779U,   2898U,   12'890U})
    for (const auto& broken : RunSchedule({.seed = seed}).broken)
      ADD_FAILURE() << "seed " << seed << ": " << broken.checker << ": " << broken.line;
}

TEST(Chaos, AFailureSaysHowToReplayIt) {
  std::ostringstream out;
  const auto found = RunChaos({.seed = 5, .planted = "double-answer"}, out);
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(*found) << out.str();
  EXPECT_NE(out.str().find("found with seed 5: requests: "), std::string::npos) << out.str();
  EXPECT_FALSE(RunChaos({.planted = "nonsense"}, out).ok());
}

}  // namespace
}  // namespace troupe::sim
