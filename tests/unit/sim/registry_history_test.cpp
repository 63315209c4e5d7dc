// The checker of registry histories, on histories made by hand: correct ones, and ones that no registry can
// have.
#include "sim/checkers/registry_history.hpp"

#include <gtest/gtest.h>

#include "base/random.hpp"

namespace troupe::sim {
namespace {

using Kind = RegistryOp::Kind;
using Result = RegistryOp::Result;

Time At(int ms) {
  return Time{} + std::chrono::milliseconds(ms);
}
RegistryOp Done(Kind kind, const std::string& key, int from, int to) {
  return {.kind = kind, .key = key, .result = Result::kDone, .invoked = At(from), .returned = At(to)};
}
RegistryOp Refused(Kind kind, const std::string& key, int from, int to) {
  return {.kind = kind, .key = key, .result = Result::kRefused, .invoked = At(from), .returned = At(to)};
}
RegistryOp Unknown(Kind kind, const std::string& key, int from) {
  return {.kind = kind, .key = key, .result = Result::kUnknown, .invoked = At(from)};
}
RegistryOp List(std::set<std::string> keys, int from, int to) {
  return {.kind = Kind::kList,
          .result = Result::kDone,
          .invoked = At(from),
          .returned = At(to),
          .listed = std::move(keys)};
}
Linearizable Judge(const std::vector<RegistryOp>& history) {
  return CheckLinearizable(history).verdict;
}

TEST(RegistryHistory, OneAfterTheOtherIsExplained) {
  EXPECT_EQ(Judge({}), Linearizable::kYes);
  EXPECT_EQ(Judge({Done(Kind::kDeploy, "a/1", 0, 1), List({"a/1"}, 2, 3), Done(Kind::kRemove, "a/1", 4, 5),
                   Refused(Kind::kShow, "a/1", 6, 7), List({}, 6, 7), Done(Kind::kDeploy, "a/1", 8, 9)}),
            Linearizable::kYes);
}

TEST(RegistryHistory, ADeploymentThatIsNotThereAfterwardsIsNot) {
  EXPECT_EQ(Judge({Done(Kind::kDeploy, "a/1", 0, 1), Refused(Kind::kShow, "a/1", 2, 3)}), Linearizable::kNo);
  EXPECT_EQ(Judge({Done(Kind::kDeploy, "a/1", 0, 1), List({}, 2, 3)}), Linearizable::kNo);
}

TEST(RegistryHistory, WhatOverlapsMayBeInAnyOrder) {
  const auto deploy = Done(Kind::kDeploy, "a/1", 0, 10);
  EXPECT_EQ(Judge({deploy, Refused(Kind::kShow, "a/1", 2, 3), Done(Kind::kShow, "a/1", 4, 5)}),
            Linearizable::kYes);
  EXPECT_EQ(Judge({deploy, Done(Kind::kShow, "a/1", 2, 3), Refused(Kind::kShow, "a/1", 4, 5)}),
            Linearizable::kNo)
      << "the function was seen before";
  EXPECT_EQ(Judge({deploy, Refused(Kind::kShow, "a/1", 10, 12)}), Linearizable::kYes)
      << "the lookup began in the moment of the answer";
}

TEST(RegistryHistory, ARemovalThatIsUndoneIsNot) {
  EXPECT_EQ(Judge({Done(Kind::kDeploy, "a/1", 0, 1), Done(Kind::kRemove, "a/1", 2, 3),
                   Done(Kind::kShow, "a/1", 4, 5)}),
            Linearizable::kNo);
}

TEST(RegistryHistory, TheSameDeploymentIsDoneOnce) {
  EXPECT_EQ(Judge({Done(Kind::kDeploy, "a/1", 0, 5), Done(Kind::kDeploy, "a/1", 1, 6)}), Linearizable::kNo);
  EXPECT_EQ(Judge({Done(Kind::kDeploy, "a/1", 0, 5), Refused(Kind::kDeploy, "a/1", 1, 6)}),
            Linearizable::kYes);
  EXPECT_EQ(Judge({Refused(Kind::kDeploy, "a/1", 0, 1)}), Linearizable::kNo);
  EXPECT_EQ(Judge({Done(Kind::kRemove, "a/1", 0, 1)}), Linearizable::kNo) << "there was nothing to remove";
}

TEST(RegistryHistory, AnOperationWithoutAnAnswerMayBeDoneLateOrNever) {
  const auto lost = Unknown(Kind::kDeploy, "a/1", 0);
  EXPECT_EQ(Judge({lost, List({}, 5, 6)}), Linearizable::kYes);
  EXPECT_EQ(Judge({lost, List({}, 5, 6), List({"a/1"}, 50, 51)}), Linearizable::kYes);
  EXPECT_EQ(Judge({lost, List({"a/1"}, 5, 6), List({}, 50, 51)}), Linearizable::kNo);
  EXPECT_EQ(Judge({List({"a/1"}, 5, 6), Unknown(Kind::kDeploy, "a/1", 7)}), Linearizable::kNo)
      << "the function was seen before its deployment was asked for";
}

TEST(RegistryHistory, AListIsOneMomentOfAllKeys) {
  const std::vector<RegistryOp> two = {Done(Kind::kDeploy, "a/1", 0, 1), Done(Kind::kDeploy, "b/1", 2, 3)};
  auto torn = two;
  torn.push_back(List({"b/1"}, 0, 4));
  EXPECT_EQ(Judge(torn), Linearizable::kNo) << "each key alone could be explained";
  auto whole = two;
  whole.push_back(List({"a/1"}, 0, 4));
  EXPECT_EQ(Judge(whole), Linearizable::kYes);
}

TEST(RegistryHistory, ANoSaysWhichOperationAndATooLongSearchSaysSo) {
  const auto no = CheckLinearizable({Done(Kind::kDeploy, "a/1", 0, 1), List({}, 2, 3)});
  EXPECT_NE(no.why.find("list done"), std::string::npos) << no.why;
  EXPECT_NE(no.why.find("[a/1]"), std::string::npos) << no.why;
  std::vector<RegistryOp> wide;
  for (int i = 0; i < 14; ++i) wide.push_back(Unknown(Kind::kDeploy, "k" + std::to_string(i) + "/1", 0));
  wide.push_back(Refused(Kind::kDeploy, "z/1", 5, 6));
  EXPECT_EQ(CheckLinearizable(wide, 100).verdict, Linearizable::kUndecided);
  EXPECT_EQ(CheckLinearizable(wide).verdict, Linearizable::kNo);
}

// Histories of a correct registry, with answers that come late or get lost, are accepted. With one answer
// changed most are refused; a correct history is never refused.
TEST(RegistryHistory, HistoriesOfATrueRegistryAreExplained) {
  int found = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Random random(seed);
    std::set<std::string> registry;
    std::vector<RegistryOp> history;
    for (int i = 0; i < 60; ++i) {
      // Each operation takes effect at 10 * i, in an interval that overlaps up to three others.
      const int from = 10 * i - static_cast<int>(random.Below(30));
      const int to = 10 * i + static_cast<int>(random.Below(30));
      const auto key = "k" + std::to_string(random.Below(3)) + "/1";
      const bool there = registry.contains(key);
      const auto kind = static_cast<Kind>(random.Below(4));
      if (kind == Kind::kList) {
        history.push_back(List(registry, from, to));
        continue;
      }
      const bool done = kind == Kind::kDeploy ? !there : there;
      if (kind == Kind::kDeploy) registry.insert(key);
      if (kind == Kind::kRemove) registry.erase(key);
      history.push_back(done ? Done(kind, key, from, to) : Refused(kind, key, from, to));
      if (random.Below(10) == 0) history.back() = Unknown(kind, key, from);
    }
    EXPECT_EQ(Judge(history), Linearizable::kYes) << "seed " << seed;
    auto& lie = history[random.Below(history.size())];
    if (lie.kind == Kind::kList)
      lie.listed.insert("k9/1");
    else
      lie.result = lie.result == Result::kDone ? Result::kRefused : Result::kDone;
    if (lie.returned == Time::max()) lie.returned = lie.invoked;
    found += Judge(history) == Linearizable::kNo ? 1 : 0;
  }
  EXPECT_GE(found, 12) << "changed answers that were found, of 60";
}

}  // namespace
}  // namespace troupe::sim
