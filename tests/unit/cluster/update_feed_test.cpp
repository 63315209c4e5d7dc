#include "cluster/members/update_feed.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>

#include "cluster/cluster_view.hpp"
#include "tests/unit/cluster/records.hpp"

namespace troupe::cluster {
namespace {

using std::chrono::seconds;

proto::FunctionKey KeyOf(const std::string& function) {
  proto::FunctionKey key;
  key.set_name(function);
  key.set_version("1");
  return key;
}

class Feed : public ::testing::Test {
 protected:
  void SetUp() override {
    catalogue_.emplace(*Catalogue::Of({}, "c"));
    feed_.emplace(*catalogue_);
    Deploy("first");
    static_cast<void>(feed_->Next(*catalogue_, members_));
  }
  void Deploy(const std::string& name) {
    proto::DeployFunction wish;
    *wish.mutable_record() = FunctionOf(name);
    const auto command = catalogue_->functions().ValidateDeploy(wish);
    ASSERT_TRUE(command.ok()) << command.status();
    catalogue_->Apply(*command);
  }
  void Join(const std::string& name) {
    proto::JoinRequest request;
    request.mutable_member()->set_name(name);
    request.mutable_member()->set_kind(proto::MEMBER_GATEWAY);
    ASSERT_TRUE(members_.Join(request, Time(seconds(1))).ok());
    catalogue_->Advance();
  }
  void Remove(const std::string& name) {
    proto::RemoveFunction remove;
    remove.mutable_key()->set_name(name);
    remove.mutable_key()->set_version("1");
    catalogue_->Apply(remove);
  }
  [[nodiscard]] proto::ClusterUpdate Next() { return feed_->Next(*catalogue_, members_); }
  [[nodiscard]] proto::ClusterUpdate Since(std::uint64_t known) {
    return UpdateFeed::Since(known, *catalogue_, members_);
  }

  std::optional<Catalogue> catalogue_;
  MembershipTable members_;
  std::optional<UpdateFeed> feed_;
};

TEST_F(Feed, EachChangeIsToldOnceAndAlone) {
  for (int i = 0; i < 100; ++i) Deploy("f" + std::to_string(i));
  EXPECT_EQ(Next().functions_size(), 100);
  Deploy("g");
  auto update = Next();
  EXPECT_FALSE(update.snapshot());
  EXPECT_EQ(update.functions_size(), 1);
  EXPECT_EQ(update.members_size(), 0);
  EXPECT_FALSE(update.workflows_listed());
  Join("gateway-1");
  update = Next();
  EXPECT_EQ(update.functions_size(), 0);
  EXPECT_EQ(update.members_size(), 1);
  catalogue_->Apply(FlowOf("flow"));
  Remove("g");
  update = Next();
  EXPECT_EQ(update.removed_size(), 1);
  EXPECT_EQ(update.workflows_size(), 1);
  EXPECT_EQ(update.members_size(), 0);
}

TEST_F(Feed, AMemberThatMissedAnUpdateFindsTheGapAndIsBroughtUpToDate) {
  ClusterView view;
  ASSERT_TRUE(view.Apply(Since(0)).applied);
  Deploy("a");
  static_cast<void>(Next());  // this update is lost
  Remove("first");
  Deploy("b");
  const auto later = Next();
  EXPECT_FALSE(view.Apply(later).applied);
  const auto missed = Since(view.revision());
  EXPECT_FALSE(missed.snapshot()) << "the update has only what the member missed";
  const auto change = view.Apply(missed);
  EXPECT_EQ(change.deployed.size(), 2u);
  EXPECT_EQ(change.removed.size(), 1u);
  EXPECT_TRUE(view.Apply(later).applied) << "a late update with known changes is applied";
  EXPECT_EQ(view.functions().size(), 2u);
  EXPECT_EQ(view.revision(), catalogue_->revision());
}

TEST_F(Feed, AMemberThatMissedAJoinFindsTheGapAlsoWhenNothingElseChanges) {
  ClusterView view;
  ASSERT_TRUE(view.Apply(Since(0)).applied);
  Join("gateway-1");
  static_cast<void>(Next());  // this update is lost
  catalogue_->Advance();      // as when two members join at once: the update before told of both
  const auto empty = Next();
  EXPECT_EQ(empty.members_size(), 0);
  EXPECT_FALSE(view.Apply(empty).applied) << "the view would count as up to date without the member";
  ASSERT_TRUE(view.Apply(Since(view.revision())).applied);
  EXPECT_EQ(view.members().size(), 1u);
  EXPECT_EQ(view.revision(), catalogue_->revision());
}

TEST_F(Feed, AManagerThatRestartedTellsEverythingToAnUnknownMember) {
  ClusterView view;
  Deploy("a");
  ASSERT_TRUE(view.Apply(Since(0)).applied);
  Remove("a");  // no member was told
  CatalogueRecords stored;
  stored.cluster = "c";
  stored.revision = catalogue_->revision();
  stored.functions.push_back(*catalogue_->functions().table().Find(KeyOf("first")));
  auto again = Catalogue::Of(std::move(stored), "c");
  ASSERT_TRUE(again.ok());
  const auto update = UpdateFeed::Since(view.revision(), *again, members_);
  EXPECT_TRUE(update.snapshot()) << "a restarted manager does not know what was removed before";
  ASSERT_EQ(view.Apply(update).removed.size(), 1u);
  EXPECT_EQ(view.functions().size(), 1u);
  EXPECT_TRUE(UpdateFeed::Since(again->revision() + 5, *again, members_).snapshot())
      << "the member is ahead of the manager";
  again->Advance();
  EXPECT_FALSE(UpdateFeed::Since(view.revision(), *again, members_).snapshot());
}

}  // namespace
}  // namespace troupe::cluster
