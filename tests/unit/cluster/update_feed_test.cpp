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
  // `bytes`: about so many does the record take.
  void Deploy(const std::string& name, std::size_t bytes = 0) {
    proto::DeployFunction wish;
    *wish.mutable_record() = FunctionOf(name);
    wish.mutable_record()->mutable_inputs(0)->mutable_name()->append(bytes, 'x');
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

TEST_F(Feed, ASnapshotOfManyFunctionsComesInPartsWhileTheyChange) {
  for (const char* name : {"a", "b", "c", "d", "e"}) Deploy(name, 600'000);
  Join("gateway-1");
  auto whole = Since(0);
  EXPECT_TRUE(whole.snapshot());
  EXPECT_EQ(whole.functions_size(), 2) << "a message has one MiB of functions and the one that goes beyond";
  EXPECT_EQ(whole.more_after(), "b");
  ClusterView view;
  EXPECT_FALSE(view.Apply(whole).applied) << "the rest is missing";
  EXPECT_EQ(view.functions().size(), 0u);
  // Behind the first part, functions that it has and functions that it lacks change.
  Remove("a");
  Remove("c");
  Deploy("aa");
  Deploy("f");
  int parts = 1;
  while (!whole.more_after().empty()) {
    auto part = UpdateFeed::SnapshotAfter(whole.more_after(), *catalogue_);
    EXPECT_EQ(part.members_size(), 0) << "the first part has what is no function";
    whole.mutable_functions()->MergeFrom(part.functions());
    whole.set_more_after(part.more_after());
    ++parts;
  }
  EXPECT_EQ(parts, 3);
  ASSERT_TRUE(view.Apply(whole).applied);
  EXPECT_EQ(view.members().size(), 1u);
  const auto missed = Since(view.revision());
  EXPECT_FALSE(missed.snapshot());
  ASSERT_TRUE(view.Apply(missed).applied);
  std::string names;
  view.functions().ForEach([&](const proto::FunctionRecord& record) { names += record.key().name() + " "; });
  EXPECT_EQ(names, "aa b d e f first ");
  EXPECT_EQ(view.revision(), catalogue_->revision());
}

TEST_F(Feed, WhatIsTooMuchForOneMessageIsAskedForByEachMember) {
  ClusterView view;
  ASSERT_TRUE(view.Apply(Since(0)).applied);
  for (const char* name : {"a", "b", "c"}) Deploy(name, 600'000);
  for (int i = 0; i < 5000; ++i) {  // more changes than the registry keeps
    proto::SetFunctionLoaded change;
    *change.mutable_key() = KeyOf("first");
    change.set_loaded(i % 2 == 0);
    catalogue_->Apply(change);
  }
  const auto told = Next();
  EXPECT_EQ(told.functions_size(), 0);
  EXPECT_FALSE(view.Apply(told).applied) << "the member would count as up to date";
  EXPECT_TRUE(Since(view.revision()).snapshot());
  Deploy("g");
  EXPECT_EQ(Next().functions_size(), 1) << "what changes behind it is told again";
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
