// What an operator is told of a node.
#include "tests/unit/node/node_fixture.hpp"

namespace troupe::node::node_view_test {
namespace {

using std::chrono::seconds;

// One worker is up, and has function "f".
class Viewed : public NodeTest {
 protected:
  explicit Viewed(const std::string& ordering) : NodeTest(Ordering(ordering)) {
    Up(0);
    Hello(7);
    Adopt("f");
    Answered(0, "prepare");
  }
  static NodeSettings Ordering(const std::string& ordering) {
    NodeSettings settings = Settings(1);
    settings.policies.ordering = ordering;
    return settings;
  }
  // A request every two seconds, after as many of which functions are put in order anew; all end alike.
  void Requests(std::uint64_t count, const proto::WorkerOutcome& outcome) {
    for (std::uint64_t i = 0; i < count; ++i) {
      now += seconds(2);
      Submit(++last_, "f");
      Answered(0, "swap-in");
      Answered(0, "run", outcome);
    }
  }

 private:
  Ask last_ = 0;
};

class ViewedBySlo : public Viewed {
 protected:
  ViewedBySlo() : Viewed("slo-aware") {}
};
TEST_F(ViewedBySlo, TheAlphaIsThatOfTheNodesOrder) {
  EXPECT_EQ(Described().alpha(), 1);
  Requests(20, {});
  EXPECT_EQ(Described().alpha(), 1);
  Requests(20, Failed(absl::StatusCode::kInternal));  // "f" does not meet its SLO any more
  EXPECT_EQ(Described().alpha(), 0.5);
}

class ViewedBusy : public NodeTest {
 protected:
  ViewedBusy() : NodeTest(Settings(2)) {
    for (const GpuIndex gpu : {0u, 1u}) Up(gpu);
  }
  double Told() {
    On(ReportAsked{.ask = 9, .wish = {}});
    return report_.load().busy_share();
  }
};
TEST_F(ViewedBusy, AHeartbeatTellsHowBusyTheGpusAreInTheMean) {
  EXPECT_EQ(Told(), 0);
  now += seconds(10);
  for (const GpuIndex gpu : {0u, 1u}) Computed(gpu, {});
  now += seconds(1);
  Computed(0, seconds(1));
  Computed(1, std::chrono::milliseconds(500));
  EXPECT_EQ(Told(), 0.75) << "the first computed all the time, the second half of it";
  now += seconds(6);
  EXPECT_EQ(Told(), 0) << "the workers were last asked too long ago";
}

class ViewedAfterAnUpgrade : public NodeTest {
 protected:
  ViewedAfterAnUpgrade() : NodeTest(Settings(2)) {}
  [[nodiscard]] std::vector<bool> TakeParts() {
    On(ReportAsked{.ask = 9, .wish = {}});
    std::vector<bool> take;
    for (const auto& gpu : report_.gpus()) take.push_back(gpu.input_parts());
    return take;
  }
};
TEST_F(ViewedAfterAnUpgrade, AGpuThatIsUnfitHoldsNoOtherBack) {
  Up(0);
  Report(1, proto::ExecutorReport::UNFIT);
  EXPECT_THAT(TakeParts(), testing::ElementsAre(true, true));
}
TEST_F(ViewedAfterAnUpgrade, AWorkerThatIsTakenOverMayNotKnowInputsInParts) {
  using testing::ElementsAre;
  EXPECT_THAT(TakeParts(), ElementsAre(false, false)) << "which workers there are is not known yet";
  input_parts_ = false;
  Up(0);
  input_parts_ = true;
  Up(1);
  EXPECT_THAT(TakeParts(), ElementsAre(false, true));
  Report(0, proto::ExecutorReport::DOWN);
  Up(0);
  EXPECT_THAT(TakeParts(), ElementsAre(true, true)) << "the next one is of this release";
  Report(0, proto::ExecutorReport::DOWN);
  EXPECT_THAT(TakeParts(), ElementsAre(true, true)) << "and so is the one after it";
}

class ViewedByDeadline : public Viewed {
 protected:
  ViewedByDeadline() : Viewed("edf") {}
};
TEST_F(ViewedByDeadline, AnOrderWithoutAnAlphaHasNone) {
  Requests(1, {});
  EXPECT_EQ(Described().alpha(), 0);
}

}  // namespace
}  // namespace troupe::node::node_view_test
