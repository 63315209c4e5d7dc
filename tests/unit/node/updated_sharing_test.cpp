// How a function shares its GPUs, changed while the node serves it: the next run obeys.
#include <google/protobuf/util/message_differencer.h>

#include "tests/unit/node/node_fixture.hpp"

namespace troupe::node::updated_sharing_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class UpdatedSharing : public NodeTest {
 protected:
  // Function "f" is adopted with a quarter of the SMs, and resident after a first run.
  UpdatedSharing() : NodeTest(Settings(1)) {
    Up(0);
    Hello(7);
    record_.mutable_sharing()->set_sm_partition(24);
    record_.set_revision(1);
    Adopt(record_);
    Answered(0, "prepare");
    On(ClusterChanged{Update()});
    Submit(1, "f");
    Answered(0, "swap-in");
    EXPECT_EQ(OrderOf(0, "run").run().sharing().sm_partition(), 24u);
  }
  proto::ClusterUpdate Update() {
    proto::ClusterUpdate update;
    update.set_since(record_.revision() - 1);
    update.set_revision(record_.revision());
    *update.add_functions() = record_;
    return update;
  }
  Lines Change(const proto::GpuSharing& sharing) {
    *record_.mutable_sharing() = sharing;
    record_.set_revision(record_.revision() + 1);
    return On(ClusterChanged{Update()});
  }

  proto::FunctionRecord record_ = Function("f");
};

proto::GpuSharing Half() {
  proto::GpuSharing sharing;
  sharing.set_sm_partition(50);
  sharing.set_quota_request(30);
  sharing.set_quota_limit(80);
  sharing.set_gpu_mem(MiB(200).count());
  sharing.set_max_instances(2);
  sharing.set_max_batch(4);
  return sharing;
}

TEST_F(UpdatedSharing, TheNextRunObeysAndNothingIsFetchedOrPreparedForIt) {
  EXPECT_THAT(Change(Half()), IsEmpty()) << "the run that is under way goes on";
  EXPECT_THAT(Answered(0, "run"), ElementsAre("answer 1 OK"));
  EXPECT_THAT(Submit(2, "f"), ElementsAre("order 0 run packed-f")) << "the model is resident as before";
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(OrderOf(0, "run").run().sharing(), Half()));
  EXPECT_THAT(Answered(0, "run"), ElementsAre("answer 2 OK"));
}

TEST_F(UpdatedSharing, WhatIsTakenBackAppliesNoMore) {
  EXPECT_THAT(Change({}), IsEmpty());
  EXPECT_THAT(Answered(0, "run"), ElementsAre("answer 1 OK"));
  EXPECT_THAT(Submit(2, "f"), ElementsAre("order 0 run packed-f"));
  EXPECT_EQ(OrderOf(0, "run").run().sharing().ByteSizeLong(), 0u);
}

TEST_F(UpdatedSharing, ARequestThatRunsAgainObeysWhatItsFunctionHasThen) {
  Change(Half());
  EXPECT_THAT(Report(0, proto::ExecutorReport::DOWN), IsEmpty());
  Up(0);
  EXPECT_EQ(OrderOf(0, "run").run().sharing().sm_partition(), 50u);
}

// Its instances follow its load: on a GPU where it has several, each has their mean part of the time, and of the SMs as much as
// all of them take together.
TEST_F(UpdatedSharing, InstancesThatDifferHaveTheirMean) {
  record_.mutable_sharing()->add_automatic("quota_request");
  const auto own = [&](std::uint32_t quota, std::uint32_t sms) {
    auto& place = *record_.add_places();
    place.set_node("node");
    place.set_quota(quota);
    place.set_sms(sms);
  };
  own(100, 24);
  own(30, 50);
  EXPECT_THAT(Change(record_.sharing()), IsEmpty());
  EXPECT_THAT(Answered(0, "run"), ElementsAre("answer 1 OK"));
  EXPECT_THAT(Submit(2, "f"), ElementsAre("order 0 run packed-f"));
  const auto& sharing = OrderOf(0, "run").run().sharing();
  EXPECT_EQ(sharing.quota_request(), 65u);
  EXPECT_EQ(sharing.sm_partition(), 30u) << "130 % of a window on 30 % of the SMs";
  EXPECT_EQ(sharing.max_instances(), 2u);
  On(ReportAsked{.ask = 9, .wish = {}});
  auto outcome = Failed(absl::StatusCode::kOk);
  outcome.mutable_run()->set_compute_ns(1'000'000);
  EXPECT_THAT(Answered(0, "run", outcome), ElementsAre("answer 2 OK"));
  On(ReportAsked{.ask = 9, .wish = {}});
  ASSERT_EQ(report_.function_demand_size(), 1);
  EXPECT_EQ(report_.function_demand(0).gpu_ns(), 300'000) << "by what the run had";
}

// Runs that began before count by what their function was then.
TEST_F(UpdatedSharing, AHeartbeatTellsWhatRunsOfAFunctionThatFollowsItsLoadHad) {
  record_.mutable_sharing()->add_automatic("quota_request");
  Change(record_.sharing());
  const auto run = [&](Ask ask, absl::StatusCode code) {
    if (ask > 1) Submit(ask, "f");
    auto outcome = Failed(code);
    outcome.mutable_run()->set_compute_ns(1'000'000);
    Answered(0, "run", outcome);
  };
  run(1, absl::StatusCode::kOk);
  On(ReportAsked{.ask = 9, .wish = {}});
  EXPECT_EQ(report_.function_demand_size(), 0);
  run(2, absl::StatusCode::kOk);
  run(3, absl::StatusCode::kInvalidArgument);
  On(ReportAsked{.ask = 9, .wish = {}});
  ASSERT_EQ(report_.function_demand_size(), 1);
  const auto& told = report_.function_demand(0);
  EXPECT_EQ(told.key().name(), "f");
  EXPECT_EQ(told.key().version(), "1");
  EXPECT_EQ(told.served(), 1u) << "a run that failed answered no request";
  EXPECT_EQ(told.gpu_ns(), 2 * 240'000) << "by its part of the SMs";
  On(ReportAsked{.ask = 9, .wish = {}});
  EXPECT_EQ(report_.function_demand_size(), 0) << "it is told once";
}

// A request that came before has to wait for a place that others could have.
TEST_F(UpdatedSharing, ARequestWithAPlaceOfItsOwnWaitsForNoneThatCameBeforeTheChange) {
  Change({});
  Adopt("g");
  Answered(0, "prepare");
  Submit(2, "g");
  Answered(0, "swap-in");
  Ask ask = 3;
  while (ask < 9 && !Submit(ask, "g").empty()) ++ask;
  EXPECT_THAT(Submit(++ask, "f"), IsEmpty()) << "the GPU has no place left";
  Change(Half());
  EXPECT_THAT(Submit(++ask, "f"), ElementsAre("order 0 run packed-f"));
}

// The file of adopted functions is what a node serves by that starts while its manager is away.
TEST_F(UpdatedSharing, IsRememberedForAStartWithoutTheManager) {
  EXPECT_THAT(On(TimerFired{Timer::kSaveAdopted}), ElementsAre("save 1 adopted"));
  Change(Half());
  EXPECT_THAT(On(TimerFired{Timer::kSaveAdopted}), ElementsAre("save 1 adopted"));
  EXPECT_EQ(saved().functions(0).sharing().quota_limit(), 80u);
}

}  // namespace
}  // namespace troupe::node::updated_sharing_test
