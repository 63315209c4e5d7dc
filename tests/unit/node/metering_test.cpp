// How a node meters: it reads its workers' pages once a second, charges host memory to the functions of each model,
// and tells the manager a statement until that has stored it.
#include "tests/unit/node/node_fixture.hpp"

namespace troupe::node::metering_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr std::int64_t kDay = 86'400'000'000'000;

class MeteringTest : public NodeTest {
 protected:
  static NodeSettings Metered() {
    auto settings = Settings(1);
    settings.meters = true;
    settings.usage.set_ledger("ledger");
    return settings;
  }
  MeteringTest() : NodeTest(Metered()) {}

  static proto::MeterReading Page(std::uint64_t runs) {
    proto::MeterReading page;
    page.set_page("a");
    auto& count = *page.add_counts();
    count.set_key("t/f");
    count.set_runs(runs);
    return page;
  }
  Lines Reads(std::vector<proto::MeterReading> pages) {
    now += seconds(1);
    return On(MetersRead{std::move(pages), kDay});
  }
  Lines Reports(std::uint64_t stored = 0) {
    ReportAsked asked{.ask = 5};
    asked.wish.set_usage_stored(stored);
    return On(asked);
  }
};

TEST_F(MeteringTest, AStatementIsToldWhenItIsInTheFileAndUntilItIsStored) {
  EXPECT_THAT(Reads({Page(2)}), ElementsAre("save usage, statement 1; t/f 2 runs, 0 KiB ms"));
  EXPECT_THAT(Reports(), ElementsAre("report 5")) << "it is not in the file yet";
  EXPECT_THAT(On(UsageSaved{absl::OkStatus()}), IsEmpty());
  EXPECT_THAT(Reports(), ElementsAre("report 5, statement 1"));
  EXPECT_THAT(Reports(), ElementsAre("report 5")) << "once a second is enough";
  now += seconds(1);
  EXPECT_THAT(Reports(), ElementsAre("report 5, statement 1"));
  now += seconds(1);
  EXPECT_THAT(Reports(1), ElementsAre("report 5"));
}

TEST_F(MeteringTest, ADiskThatIsFullIsToldOnceAndTriedAgain) {
  Reads({Page(2)});
  EXPECT_THAT(On(UsageSaved{absl::ResourceExhaustedError("the disk is full")}), IsEmpty());
  EXPECT_THAT(Reports(), ElementsAre("report 5"));
  EXPECT_THAT(Reads({Page(3)}), ElementsAre("save usage, statement 1; t/f 2 runs, 0 KiB ms"));
  On(UsageSaved{absl::OkStatus()});
  EXPECT_THAT(Reports(), ElementsAre("report 5, statement 1"));
}

TEST_F(MeteringTest, PagesThatCannotBeListedAreNotTakenForGone) {
  Reads({Page(2)});
  On(UsageSaved{absl::OkStatus()});
  EXPECT_THAT(On(MetersRead{absl::UnavailableError("no descriptors"), kDay}), IsEmpty());
  Reports(1);
  Reads({Page(2)});
  EXPECT_THAT(Reports(), ElementsAre("report 5")) << "the same counts are not charged again";
}

TEST_F(MeteringTest, HostMemoryIsChargedToTheFunctionsOfTheModelInEqualParts) {
  Up(0);
  auto first = Function("f");
  first.set_tenant("t");
  auto second = Function("g");
  second.set_model_digest(first.model_digest());
  ClusterChanged known;
  known.update.set_snapshot(true);
  known.update.set_revision(1);
  *known.update.add_functions() = first;
  *known.update.add_functions() = second;
  On(known);
  Adopt(first);
  // 100 MiB for a second.
  EXPECT_THAT(
      Reads({}),
      ElementsAre("save usage, statement 1; /g 0 runs, 51200000 KiB ms; t/f 0 runs, 51200000 KiB ms"));
}

TEST_F(MeteringTest, ARunAndItsTransferNameTheirPayer) {
  Up(0);
  auto function = Function("f");
  function.set_tenant("t");
  Adopt(function);
  Answered(0, "prepare");
  Hello(7);
  Submit(1, "f");
  EXPECT_EQ(OrderOf(0, "swap-in").swap_in().meter(), "t/f");
  EXPECT_EQ(OrderOf(0, "run").run().meter(), "t/f");
}

}  // namespace
}  // namespace troupe::node::metering_test
