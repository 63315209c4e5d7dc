// What a node does when the source or the destination of a copy between two GPUs is lost. Each test is a table of
// events and what the node does about them.
#include "tests/unit/node/node_fixture.hpp"

namespace troupe::node::copy_recovery_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Function "f" is on GPU `source_`, which runs request 3. Request 2 is to run on the other GPU, so the first one has
// been asked to keep the weights where they are until they are copied.
class CopyRecovery : public NodeTest {
 protected:
  static NodeSettings Linked() {
    auto settings = Settings(2);
    settings.policies.gpu = "interference-aware";  // an idle GPU takes the request
    settings.topology = *Topology::Parse("link:0-1=100GB");
    return settings;
  }
  CopyRecovery() : NodeTest(Linked()) {
    peer_copies_ = true;
    Up(0);
    Up(1);
    Hello(7);
    Adopt("f");
    Answered(0, "prepare");
    Answered(1, "prepare");
    source_ = Submit(1, "f")[0].starts_with("order 0") ? 0 : 1;
    to_ = 1 - source_;
    Answered(source_, "swap-in");
    Answered(source_, "run");
    Submit(3, "f");
    EXPECT_THAT(Submit(2, "f"), ElementsAre(Order(source_, "pin")));
  }
  [[nodiscard]] static std::string Order(GpuIndex gpu, const char* kind) {
    return absl::StrCat("order ", gpu, " ", kind, " packed-f");
  }
  [[nodiscard]] std::string Return() const { return absl::StrCat("order ", source_, " return"); }
  Lines Pinned() {
    proto::WorkerOutcome outcome;
    outcome.mutable_pin()->set_pin(5);
    return Answered(source_, "pin", outcome);
  }
  // The GPU runs requests 3 and 2, one after the other, with weights that came from the host or were there.
  void ExpectBothServedBy(GpuIndex gpu) {
    Answered(gpu, "swap-in");
    EXPECT_THAT(Answered(gpu, "run"), ElementsAre("answer 3 OK", Order(gpu, "run")));
    EXPECT_THAT(Answered(gpu, "run"), ElementsAre("answer 2 OK"));
  }
  GpuIndex source_ = 0, to_ = 1;
};

TEST_F(CopyRecovery, TheWeightsComeFromTheOtherGpuWhichIsFreeOfThemThen) {
  EXPECT_THAT(Pinned(), ElementsAre(Order(to_, "swap-in"), Order(to_, "run")));
  EXPECT_TRUE(OrderOf(to_, "swap-in").swap_in().has_from_gpu());
  EXPECT_THAT(Answered(to_, "swap-in"), ElementsAre(Return()));
  EXPECT_THAT(Answered(to_, "run"), ElementsAre("answer 2 OK"));
}

TEST_F(CopyRecovery, ASourceThatIsLostBeforeItPinsTheWeights) {
  EXPECT_THAT(Report(source_, proto::ExecutorReport::DOWN), IsEmpty())
      << "the order to pin is answered first";
  EXPECT_THAT(Answered(source_, "pin", Failed(absl::StatusCode::kUnavailable)),
              ElementsAre(Order(to_, "run")))
      << "the worker says that it has no such model";
  EXPECT_THAT(Answered(to_, "run", Failed(absl::StatusCode::kNotFound)),
              ElementsAre(Order(to_, "swap-in"), Order(to_, "run")));
  ExpectBothServedBy(to_);
}

TEST_F(CopyRecovery, ASourceThatIsLostWhileItsMemoryIsCopied) {
  Pinned();
  EXPECT_THAT(Report(source_, proto::ExecutorReport::DOWN), IsEmpty());
  EXPECT_THAT(Answered(to_, "swap-in", Failed(absl::StatusCode::kUnavailable)), IsEmpty());
  EXPECT_THAT(Answered(to_, "run", Failed(absl::StatusCode::kNotFound)),
              ElementsAre(Order(to_, "swap-in"), Order(to_, "run")));
  EXPECT_FALSE(OrderOf(to_, "swap-in").swap_in().has_from_gpu()) << "only the host has the weights";
  ExpectBothServedBy(to_);
}

TEST_F(CopyRecovery, ADestinationThatIsLostBeforeTheWeightsArePinned) {
  EXPECT_THAT(Report(to_, proto::ExecutorReport::DOWN), IsEmpty());
  EXPECT_THAT(Pinned(), ElementsAre(Return()));
  ExpectBothServedBy(source_);
}

TEST_F(CopyRecovery, ADestinationThatIsLostWhileItCopies) {
  Pinned();
  EXPECT_THAT(Report(to_, proto::ExecutorReport::DOWN), ElementsAre(Return()));
  EXPECT_THAT(Answered(to_, "swap-in", Failed(absl::StatusCode::kUnavailable)), IsEmpty())
      << "the weights are given back once";
  ExpectBothServedBy(source_);
}

TEST_F(CopyRecovery, ARequestThatIsCancelledGivesTheWeightsBackAfterTheCopy) {
  EXPECT_THAT(On(RequestCancelled{{7, 2}}), IsEmpty());
  EXPECT_THAT(Pinned(),
              ElementsAre(Order(to_, "swap-in"), Order(to_, "run"), absl::StrCat("order ", to_, " cancel")));
  EXPECT_THAT(Answered(to_, "swap-in"), ElementsAre(Return()));
  EXPECT_THAT(Answered(to_, "run", Failed(absl::StatusCode::kCancelled)), ElementsAre("answer 2 CANCELLED"));
}

TEST_F(CopyRecovery, AModelThatIsTakenOffTheNodeBeforeItsWeightsArePinned) {
  EXPECT_THAT(On(ModelDisowned{"model-f"}), IsEmpty());
  EXPECT_THAT(Pinned(), ElementsAre(Return(), "bounce 2 BOUNCE_NOT_ADOPTED"));
  EXPECT_THAT(Answered(source_, "run"), ElementsAre("answer 3 OK", Order(source_, "evict"), "drop model-f"));
}

}  // namespace
}  // namespace troupe::node::copy_recovery_test
