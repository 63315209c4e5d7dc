// What a member's view knows of profiles: which one says how long a run takes, and that it forgets what is gone.
#include "cluster/profiled_runs.hpp"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "cluster/cluster_view.hpp"
#include "cluster/members/update_feed.hpp"
#include "tests/unit/cluster/records.hpp"

namespace troupe::cluster::profiled_runs_test {
namespace {

using std::chrono::milliseconds;

// A run takes 40 ms on half of the SMs and 20 ms on all; with a batch of 4 twice as long.
proto::FunctionProfile ProfileOf(const std::string& kind, int times = 1, const std::string& function = "f") {
  proto::FunctionProfile profile;
  profile.set_model_digest(FunctionOf(function).model_digest());
  profile.set_gpu_kind(kind);
  for (const std::uint32_t batch : {1, 4}) {
    for (const std::uint32_t share : {50, 100}) {
      auto& row = *profile.add_rows();
      row.set_sm_partition(share);
      row.set_quota_limit(100);
      row.set_batch(batch);
      row.set_throughput(1);
      row.set_run_ns(Duration(milliseconds(times * (share == 50 ? 40 : 20) * (batch == 4 ? 2 : 1))).count());
    }
  }
  return profile;
}

proto::FunctionRecord OnHalf() {
  auto record = FunctionOf("f");
  record.mutable_sharing()->set_sm_partition(50);
  return record;
}

class Runs : public testing::Test {
 protected:
  void Tell(std::vector<proto::FunctionProfile> profiles, const GpuKinds& kinds = {}) {
    proto::ClusterUpdate update;
    update.set_since(revision_);
    update.set_revision(++revision_);
    for (auto& profile : profiles) *update.add_profiles() = std::move(profile);
    for (const auto& kind : kinds) {
      auto& node = *update.add_members();
      node.set_name(absl::StrCat("n ", kind));
      node.set_kind(proto::MEMBER_NODE);
      node.add_gpus()->set_kind(kind);
    }
    ASSERT_TRUE(view_.Apply(update).applied);
  }

  ClusterView view_;
  std::uint64_t revision_ = 0;
};

TEST_F(Runs, TheFunctionsShareAndTheBatchCount) {
  Tell({ProfileOf("slow")}, {"slow"});
  EXPECT_EQ(view_.RunOf(OnHalf(), 1).shortest, milliseconds(40));
  EXPECT_EQ(view_.RunOf(OnHalf(), 4).shortest, milliseconds(80));
  EXPECT_EQ(view_.RunOf(FunctionOf("f"), 1).shortest, milliseconds(20));
  EXPECT_EQ(view_.RunOf(FunctionOf("f"), 8).shortest, Duration()) << "no such batch was measured";
}

TEST_F(Runs, InputsInPartsAreForAClusterWhoseEveryGpuTakesThem) {
  proto::ClusterUpdate update;
  update.set_snapshot(true);
  update.set_revision(1);
  EXPECT_FALSE(view_.take_input_parts()) << "nothing is known yet";
  for (int node = 0; node < 2; ++node) {
    auto& member = *update.add_members();
    member.set_name(absl::StrCat("n", node));
    member.set_kind(proto::MEMBER_NODE);
    for (int gpu = 0; gpu < 2; ++gpu) member.add_gpus()->set_input_parts(true);
  }
  update.add_members()->set_kind(proto::MEMBER_GATEWAY);
  ASSERT_TRUE(view_.Apply(update).applied);
  EXPECT_TRUE(view_.take_input_parts());
  update.set_revision(2);
  update.mutable_members(1)->mutable_gpus(1)->set_input_parts(false);
  ASSERT_TRUE(view_.Apply(update).applied);
  EXPECT_FALSE(view_.take_input_parts());
  update.set_revision(3);
  update.mutable_members(1)->set_state(proto::MEMBER_LEFT);
  ASSERT_TRUE(view_.Apply(update).applied);
  EXPECT_TRUE(view_.take_input_parts()) << "the node that has left counts no more";
}

TEST_F(Runs, ABatchIsAllPartsOfItsInput) {
  google::protobuf::RepeatedPtrField<proto::Tensor> inputs;
  for (const std::int64_t rows : {3, 5}) {
    auto& spec = *inputs.Add()->mutable_spec();
    spec.set_name("x");
    spec.add_shape(rows);
    spec.add_shape(4);
    inputs.rbegin()->set_continues(inputs.size() > 1);
  }
  proto::FunctionRecord function;
  auto& declared = *function.add_inputs();
  declared.set_name("x");
  declared.add_shape(-1);
  declared.add_shape(4);
  EXPECT_EQ(BatchOf(function, inputs), 8u);
}

TEST_F(Runs, OfSeveralKindsTheFastestCountsWhenEachHasAProfile) {
  Tell({ProfileOf("slow", 2), ProfileOf("fast")}, {"slow", "fast"});
  EXPECT_EQ(view_.RunOf(OnHalf(), 1).shortest, milliseconds(40));
  EXPECT_EQ(view_.profiles().RunTime(OnHalf(), 1, "slow"), milliseconds(80));
  const RunsByKind both = {{"fast", milliseconds(40)}, {"slow", milliseconds(80)}};
  EXPECT_EQ(view_.RunOf(OnHalf(), 1).by_kind, both);
  EXPECT_EQ(view_.KindsOfNodes().at("n slow"), GpuKinds{"slow"});
  Tell({}, {"slow", "fast", "new"});
  EXPECT_EQ(view_.RunOf(OnHalf(), 1).by_kind, both);
  EXPECT_EQ(view_.RunOf(OnHalf(), 1).shortest, Duration());
  Tell({}, {"slow"});
  EXPECT_EQ(view_.RunOf(OnHalf(), 1).shortest, milliseconds(80));
  EXPECT_EQ(view_.RunOf(OnHalf(), 1).by_kind, RunsByKind()) << "all GPUs are alike";
}

TEST_F(Runs, AProfileOfAnotherModelOrPrecisionDoesNotCount) {
  auto half = ProfileOf("slow");
  half.set_precision(proto::PRECISION_FP16);
  Tell({half, ProfileOf("slow", 1, "g")}, {"slow"});
  EXPECT_EQ(view_.RunOf(OnHalf(), 1).shortest, Duration());
}

TEST_F(Runs, WhatIsGoneIsForgotten) {
  Tell({ProfileOf("slow")}, {"slow"});
  auto gone = ProfileOf("slow");
  gone.clear_rows();
  Tell({gone});
  EXPECT_TRUE(view_.profiles().empty());
}

TEST_F(Runs, ThereAreNoMoreThanTheManagerKeeps) {
  ProfiledRuns runs;
  for (std::size_t i = 0; i <= ProfiledRuns::kMost; ++i) {
    proto::ClusterUpdate update;
    *update.add_profiles() = ProfileOf(absl::StrCat("kind ", i));
    update.mutable_profiles(0)->set_revision(i + 1);
    runs.Apply(update);
  }
  EXPECT_EQ(runs.RunTime(OnHalf(), 1, "kind 0"), Duration()) << "it changed least lately";
  EXPECT_EQ(runs.RunTime(OnHalf(), 1, "kind 1"), milliseconds(40));
}

// --- what the manager tells ---

TEST(ProfileFeed, TellsThatAProfileIsGone) {
  CatalogueRecords records;
  records.cluster = "c";
  records.profiles.push_back(ProfileOf("slow"));
  auto catalogue = *Catalogue::Of(std::move(records), "c");
  MembershipTable members;
  ClusterView view;
  ASSERT_TRUE(view.Apply(UpdateFeed::Since(0, catalogue, members)).applied);
  EXPECT_FALSE(view.profiles().empty());
  UpdateFeed feed(catalogue);
  proto::DropProfile drop;
  *drop.mutable_profile() = ProfileOf("slow");
  catalogue.Apply(drop);
  ClusterView away = view;
  ASSERT_TRUE(view.Apply(feed.Next(catalogue, members)).applied);
  EXPECT_TRUE(view.profiles().empty());
  ASSERT_TRUE(away.Apply(UpdateFeed::Since(away.revision(), catalogue, members)).applied);
  EXPECT_TRUE(away.profiles().empty()) << "a member that was away hears of it, too";
  EXPECT_EQ(UpdateFeed::Since(0, catalogue, members).profiles_size(), 0);
}

}  // namespace
}  // namespace troupe::cluster::profiled_runs_test
