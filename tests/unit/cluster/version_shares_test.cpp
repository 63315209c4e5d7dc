// How versions share the requests that name none: what each wish makes of the shares, what is refused, and which
// version gets which request. Tables of versions and wishes.
#include "cluster/version_shares.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cluster/version_rotation.hpp"
#include "tests/unit/cluster/records.hpp"

namespace troupe::cluster::version_shares_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

proto::FunctionRecord VersionOf(std::uint64_t number) {
  auto record = FunctionOf("f");
  record.mutable_key()->set_version(absl::StrCat(number));
  return record;
}

proto::SplitFunction Wish() {
  proto::SplitFunction wish;
  wish.set_name("f");
  return wish;
}
proto::SplitFunction CanaryOf(const std::string& version, std::uint32_t percent) {
  auto wish = Wish();
  wish.mutable_canary()->set_version(version);
  wish.mutable_canary()->set_percent(percent);
  return wish;
}
proto::SplitFunction PromoteOf(const std::string& version) {
  auto wish = Wish();
  wish.set_promote(version);
  return wish;
}
proto::SplitFunction RollBack() {
  auto wish = Wish();
  wish.set_roll_back(true);
  return wish;
}
proto::SplitFunction SharesOf(const std::vector<std::pair<std::string, std::uint32_t>>& shares) {
  auto wish = Wish();
  wish.mutable_shares();
  for (const auto& [version, percent] : shares) {
    auto& share = *wish.mutable_shares()->add_shares();
    share.set_version(version);
    share.set_percent(percent);
  }
  return wish;
}

class VersionShares : public testing::Test {
 protected:
  VersionShares() {
    for (const std::uint64_t number : {1, 2, 3}) table_.Put(VersionOf(number));
  }
  void Change(std::uint64_t number, const std::function<void(proto::FunctionRecord&)>& change) {
    auto record = table_.VersionsOf("f")->at(number);
    change(record);
    table_.Put(record);
  }
  absl::Status Ask(const proto::SplitFunction& wish) {
    const auto commands = SplitVersions(*table_.VersionsOf("f"), wish);
    if (!commands.ok()) return commands.status();
    EXPECT_FALSE(commands->empty());
    for (const auto& command : *commands)
      Change(VersionNumber(command.key().version()), [&](proto::FunctionRecord& record) {
        record.set_share_percent(command.share_percent());
        record.set_role(command.role());
      });
    return absl::OkStatus();
  }
  // "1:90 stable, 2:10 canary"; versions without share and role are left out.
  [[nodiscard]] std::string Shares() const {
    constexpr const char* kRoles[] = {"", " stable", " canary", " former"};
    std::vector<std::string> shares;
    for (const auto& [number, record] : *table_.VersionsOf("f"))
      if (record.share_percent() > 0 || record.role() != proto::VERSION_PLAIN)
        shares.push_back(absl::StrCat(number, ":", record.share_percent(), kRoles[record.role()]));
    return absl::StrJoin(shares, ", ");
  }
  // The versions of so many requests in a row.
  std::string Versions(std::size_t requests) {
    std::string versions;
    proto::FunctionKey key;
    key.set_name("f");
    for (std::size_t i = 0; i < requests; ++i) versions += (*rotation_.Choose(table_, key))->key().version();
    return versions;
  }

  FunctionTable table_;
  VersionRotation rotation_;
};

TEST_F(VersionShares, ACanaryIsPromotedAndRolledBack) {
  ASSERT_TRUE(Ask(CanaryOf("3", 10)).ok());
  EXPECT_EQ(Shares(), "2:90 stable, 3:10 canary") << "the newest version besides the canary is stable";
  ASSERT_TRUE(Ask(CanaryOf("3", 50)).ok());
  EXPECT_EQ(Shares(), "2:50 stable, 3:50 canary");
  ASSERT_TRUE(Ask(PromoteOf("")).ok());
  EXPECT_EQ(Shares(), "2:0 former, 3:100 stable");
  ASSERT_TRUE(Ask(RollBack()).ok());
  EXPECT_EQ(Shares(), "2:100 stable");
  EXPECT_TRUE(absl::IsFailedPrecondition(Ask(RollBack()))) << "one step back is remembered, not two";
  ASSERT_TRUE(Ask(CanaryOf("1", 1)).ok());
  EXPECT_EQ(Shares(), "1:1 canary, 2:99 stable");
  ASSERT_TRUE(Ask(RollBack()).ok());
  EXPECT_EQ(Shares(), "2:100 stable") << "a canary that is rolled back is not a version to return to";
  ASSERT_TRUE(Ask(SharesOf({})).ok());
  EXPECT_EQ(Shares(), "");
}

TEST_F(VersionShares, APromotionRemembersWhatAnsweredBefore) {
  ASSERT_TRUE(Ask(PromoteOf("1")).ok());
  EXPECT_EQ(Shares(), "1:100 stable, 3:0 former");
  ASSERT_TRUE(Ask(PromoteOf("1")).ok());
  EXPECT_EQ(Shares(), "1:100 stable, 3:0 former") << "the same again changes nothing";
}

TEST_F(VersionShares, ExactSharesKeepTheStableVersionAsLongAsItHasOne) {
  ASSERT_TRUE(Ask(SharesOf({{"1", 90}, {"2", 10}})).ok());
  EXPECT_EQ(Shares(), "1:90 stable, 2:10 canary, 3:0 former");
  ASSERT_TRUE(Ask(SharesOf({{"1", 10}, {"2", 90}})).ok());
  EXPECT_EQ(Shares(), "1:10 stable, 2:90 canary, 3:0 former");
  ASSERT_TRUE(Ask(SharesOf({{"1", 20}, {"2", 30}, {"3", 50}})).ok());
  EXPECT_EQ(Shares(), "1:20 stable, 2:30 canary, 3:50 canary");
  ASSERT_TRUE(Ask(SharesOf({{"1", 0}, {"2", 100}})).ok());
  EXPECT_EQ(Shares(), "1:0 former, 2:100 stable");
}

TEST_F(VersionShares, WhatContradictsItselfIsRefused) {
  EXPECT_THAT(Ask(CanaryOf("9", 10)).message(),
              HasSubstr("there is no version '9' of function 'f'; its versions are 1, 2, 3"));
  for (const auto& wish :
       {CanaryOf("2", 0), CanaryOf("2", 100), SharesOf({{"1", 50}}), SharesOf({{"1", 50}, {"1", 50}}),
        SharesOf({{"1", 101}}), SharesOf({{"1", 4294967295}, {"2", 101}}), Wish()})
    EXPECT_TRUE(absl::IsInvalidArgument(Ask(wish))) << wish.ShortDebugString();
  EXPECT_TRUE(absl::IsFailedPrecondition(Ask(PromoteOf("")))) << "there is no canary";
  ASSERT_TRUE(Ask(CanaryOf("3", 10)).ok());
  EXPECT_THAT(Ask(CanaryOf("1", 10)).message(), HasSubstr("version 3 of function 'f' is a canary already"));
  EXPECT_THAT(Ask(CanaryOf("2", 10)).message(), HasSubstr("is the stable one"));
  EXPECT_EQ(Shares(), "2:90 stable, 3:10 canary") << "a refusal changes nothing";
}

struct Unfit {
  const char* why;
  std::function<void(proto::FunctionRecord&)> change;
};

TEST_F(VersionShares, ACanaryOfAnotherSignatureIsRefusedByName) {
  const Unfit rows[] = {
      {"has the input 'x' as FP64 [-1] instead of FP32 [-1]",
       [](auto& record) { record.mutable_inputs(0)->set_type(proto::FP64); }},
      {"has the input 'x' as FP32 [8] instead of FP32 [-1]",
       [](auto& record) { record.mutable_inputs(0)->set_shape(0, 8); }},
      {"has the input 'z', which the other lacks",
       [](auto& record) { record.mutable_inputs(0)->set_name("z"); }},
      {"has no input 'x'", [](auto& record) { record.clear_inputs(); }},
      {"has the output 'y' as FP32 [-1, 2] instead of FP32 [-1]",
       [](auto& record) { record.mutable_outputs(0)->add_shape(2); }},
      {"is unloaded", [](auto& record) { record.set_loaded(false); }},
      {"keeps state on its GPU", [](auto& record) { record.add_state()->set_input("x"); }},
  };
  const auto fit = table_.VersionsOf("f")->at(3);
  for (const auto& row : rows) {
    Change(3, row.change);
    for (const auto& wish : {CanaryOf("3", 10), SharesOf({{"2", 90}, {"3", 10}})}) {
      const auto status = Ask(wish);
      EXPECT_TRUE(absl::IsFailedPrecondition(status)) << row.why;
      EXPECT_THAT(status.message(), HasSubstr("function 'f' version 3"));
      EXPECT_THAT(status.message(), HasSubstr(row.why));
    }
    table_.Put(fit);
  }
  Change(3, [](auto& record) { record.mutable_inputs(0)->set_type(proto::FP64); });
  EXPECT_TRUE(Ask(PromoteOf("3")).ok()) << "it may have all of them, as a new version without shares has";
}

TEST_F(VersionShares, AVersionThatGetsRequestsIsNotRemoved) {
  const auto may_remove = [&](std::uint64_t number) {
    const auto& versions = *table_.VersionsOf("f");
    return CheckRemovable(versions, versions.at(number));
  };
  EXPECT_TRUE(may_remove(3).ok());
  ASSERT_TRUE(Ask(CanaryOf("3", 10)).ok());
  EXPECT_TRUE(may_remove(1).ok());
  EXPECT_THAT(may_remove(2).message(), HasSubstr("gets 90 % of the requests"));
  EXPECT_THAT(may_remove(3).message(), HasSubstr("is a canary and gets 10 %"));
  ASSERT_TRUE(Ask(PromoteOf("3")).ok());
  proto::FunctionKey key;
  key.set_name("f");
  for (const char* version : {"1", "2"}) {
    key.set_version(version);
    EXPECT_TRUE(table_.Remove(key));
  }
  EXPECT_TRUE(may_remove(3).ok()) << "the last one goes with its function";
}

TEST_F(VersionShares, RequestsAreSpreadEvenlyAndExactly) {
  EXPECT_EQ(Versions(3), "333") << "without shares the newest version answers";
  ASSERT_TRUE(Ask(SharesOf({{"1", 75}, {"2", 25}})).ok());
  EXPECT_EQ(Versions(8), "11211121");
  ASSERT_TRUE(Ask(SharesOf({{"1", 50}, {"2", 30}, {"3", 20}})).ok());
  EXPECT_EQ(Versions(10), "1231121321");
  const auto hundred = Versions(100);
  EXPECT_EQ(std::count(hundred.begin(), hundred.end(), '3'), 20);
  ASSERT_TRUE(Ask(PromoteOf("2")).ok());
  EXPECT_EQ(Versions(3), "222");
}

TEST_F(VersionShares, ARequestThatNamesAVersionTakesNoTurn) {
  ASSERT_TRUE(Ask(SharesOf({{"1", 50}, {"2", 50}})).ok());
  proto::FunctionKey key;
  key.set_name("f");
  key.set_version("3");
  EXPECT_EQ(Versions(1), "1");
  EXPECT_EQ((*rotation_.Choose(table_, key))->key().version(), "3");
  EXPECT_EQ(Versions(3), "212");
}

TEST_F(VersionShares, WhatIsUnloadedGetsNothingAndTheOthersItsShare) {
  ASSERT_TRUE(Ask(SharesOf({{"1", 50}, {"2", 25}, {"3", 25}})).ok());
  const auto set_loaded = [&](std::uint64_t number, bool loaded) {
    Change(number, [&](auto& record) { record.set_loaded(loaded); });
  };
  set_loaded(1, false);
  EXPECT_EQ(Versions(4), "2323");
  set_loaded(2, false);
  EXPECT_EQ(Versions(2), "33");
  set_loaded(3, false);
  proto::FunctionKey key;
  key.set_name("f");
  EXPECT_TRUE(absl::IsUnavailable(rotation_.Choose(table_, key).status()));
  set_loaded(1, true);
  EXPECT_EQ(Versions(2), "11");
}

TEST_F(VersionShares, TheStableVersionAnswersWhatIsAskedOfTheFunction) {
  proto::FunctionKey key;
  key.set_name("f");
  ASSERT_TRUE(Ask(SharesOf({{"1", 90}, {"2", 10}})).ok());
  ASSERT_TRUE(Ask(SharesOf({{"1", 10}, {"2", 90}})).ok());
  EXPECT_EQ(table_.Find(key)->key().version(), "1");
  Change(1, [](auto& record) { record.set_loaded(false); });
  EXPECT_EQ(table_.Find(key)->key().version(), "2");
  table_ = FunctionTable();
  EXPECT_EQ(table_.Find(key), nullptr);
  EXPECT_FALSE(table_.AreShared("f"));
}

}  // namespace
}  // namespace troupe::cluster::version_shares_test
