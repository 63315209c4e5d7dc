#include "sim/checkers/isolation_check.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::sim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::vector<ModelUser> kUsers = {{"model-a", "a"}, {"shared", "s0"}, {"shared", "s1"}};

TEST(IsolationCheck, ARuntimeHasTheModelOfTheFunctionThatItServes) {
  EXPECT_THAT(CheckIsolation({{"here", "function/a", "model-a"},
                              {"here", "function/s0", "shared"},
                              {"there", "function/s1", "shared"}},
                             kUsers),
              IsEmpty());
}

TEST(IsolationCheck, AnotherFunctionsModelIsFound) {
  EXPECT_THAT(CheckIsolation({{"here", "function/a", "shared"}}, kUsers),
              ElementsAre(HasSubstr("here served 'function/a' and had model shared")));
  EXPECT_THAT(CheckIsolation({{"here", "", "model-a"}}, kUsers), ElementsAre(HasSubstr("here served ''")))
      << "a runtime that serves no function has no model";
}

}  // namespace
}  // namespace troupe::sim
