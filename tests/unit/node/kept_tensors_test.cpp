// A node whose workers keep outputs of runs for later runs.
#include "node/tensors/input_placement.hpp"
#include "proto/usage_key.hpp"
#include "tests/unit/node/node_fixture.hpp"

namespace troupe::node::kept_tensors_test {
namespace {

using std::chrono::milliseconds;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::uint64_t kTensor = 1 << 20;

// Router 7 asks; functions "f" and "g" are adopted and prepared on both GPUs.
class KeptTensorsTest : public NodeTest {
 protected:
  static NodeSettings OfDaemon(std::uint64_t incarnation) {
    auto settings = Settings(2);
    settings.incarnation = incarnation;
    settings.meters = true;
    return settings;
  }
  explicit KeptTensorsTest(const NodeSettings& settings = OfDaemon(3)) : NodeTest(settings) {
    peer_copies_ = settings.topology.HasLinks();
    Up(0);
    Up(1);
    Hello(7);
    for (const char* function : {"f", "g"}) {
      Adopt(function);
      Answered(0, "prepare");
      Answered(1, "prepare");
    }
  }
  RequestArrived Request(Ask ask, const std::string& function) {
    RequestArrived arrived;
    arrived.ask = ask;
    arrived.message.mutable_id()->set_router(7);
    arrived.message.mutable_id()->set_sequence(ask);
    *arrived.message.mutable_function() = Function(function).key();
    arrived.message.set_model_digest(Function(function).model_digest());
    return arrived;
  }
  // A request of "f" that runs on this GPU and leaves its output "y" there.
  proto::KeptTensor Keep(Ask ask, std::uint32_t gpu) {
    auto arrived = Request(ask, "f");
    arrived.message.add_keep("y");
    arrived.message.set_gpu(gpu);
    On(std::move(arrived));
    Answered(gpu, "swap-in");
    EXPECT_THAT(OrderOf(gpu, "run").run().keep(0).output(), "y");
    EXPECT_THAT(See(gpu, "run", Left(OrderOf(gpu, "run").run().keep(0).number())),
                ElementsAre(absl::StrCat("answer ", ask, " OK")));
    EXPECT_EQ(answer_.served().release(), 1u);
    return answer_.served().outputs(0).data().kept();
  }
  static proto::WorkerOutcome Left(std::uint64_t number) {
    proto::WorkerOutcome outcome;
    auto& output = *outcome.mutable_run()->add_outputs();
    output.mutable_spec()->set_name("y");
    output.mutable_data()->mutable_kept()->set_number(number);
    output.mutable_data()->mutable_kept()->set_length(kTensor);
    return outcome;
  }
  // A request of "g" that reads these tensors.
  Lines Read(Ask ask, const std::vector<proto::KeptTensor>& tensors, const std::string& function = "g") {
    auto arrived = Request(ask, function);
    for (const auto& tensor : tensors) {
      auto& input = *arrived.message.add_inputs();
      input.mutable_spec()->set_name(absl::StrCat("x", arrived.message.inputs_size() - 1));
      *input.mutable_data()->mutable_kept() = tensor;
    }
    return Seen(std::move(arrived));
  }
  // What an event leads to, of which the last answers are kept.
  Lines Seen(Event event) {
    Lines lines;
    for (const auto& effect : Raw(std::move(event))) {
      if (const auto* answer = std::get_if<Answer<proto::SubmitReply>>(&effect)) answer_ = answer->reply;
      if (const auto* exported = std::get_if<Answer<proto::ExportedTensors>>(&effect))
        exported_ = exported->reply;
      auto line = Show(effect);
      if (!line.empty()) lines.push_back(std::move(line));
    }
    return lines;
  }
  Lines See(GpuIndex gpu, const std::string& kind, proto::WorkerOutcome outcome = {}) {
    outcome.set_sequence(OrderOf(gpu, kind).sequence());
    return Seen(OrderAnswered{std::move(outcome)});
  }
  static proto::WorkerOutcome ExportedTo(std::uint64_t slice) {
    proto::WorkerOutcome outcome;
    outcome.mutable_exported()->mutable_place()->set_slice(slice);
    outcome.mutable_exported()->mutable_place()->set_length(kTensor);
    return outcome;
  }
  Lines Release(Ask ask) { return On(OutputsRead{{7, ask}}); }

  proto::SubmitReply answer_;
  proto::ExportedTensors exported_;
};

TEST_F(KeptTensorsTest, AReaderRunsWhereItsInputsAre) {
  const auto kept = Keep(1, 1);
  EXPECT_EQ(kept.node(), "node");
  EXPECT_EQ(kept.daemon(), 3u);
  EXPECT_THAT(Read(2, {kept}), ElementsAre("order 1 swap-in packed-g", "order 1 run packed-g"));
  EXPECT_EQ(OrderOf(1, "run").run().inputs(0).data().kept().number(), kept.number());
  See(1, "swap-in");
  EXPECT_THAT(See(1, "run"), ElementsAre("answer 2 OK"));
  EXPECT_THAT(Release(1), ElementsAre("order 1 release"));
  EXPECT_THAT(OrderOf(1, "release").release().kept(), ElementsAre(kept.number()));
  EXPECT_THAT(Release(1), IsEmpty()) << "once";
}

TEST_F(KeptTensorsTest, WhatIsOnAnotherGpuIsExportedBeforeItsReaderIsPlanned) {
  const auto here = Keep(1, 0);
  const auto there = Keep(2, 1);
  auto more = there;
  more.set_length(kTensor / 2);
  // Most of the inputs are on GPU 0.
  EXPECT_THAT(Read(3, {here, more}), ElementsAre("order 1 export"));
  EXPECT_EQ(OrderOf(1, "export").export_tensor().tensor().length(), kTensor / 2);
  EXPECT_THAT(See(1, "export", ExportedTo(44)),
              ElementsAre("order 0 swap-in packed-g", "order 0 run packed-g"));
  EXPECT_TRUE(OrderOf(0, "run").run().inputs(0).data().has_kept());
  EXPECT_EQ(OrderOf(0, "run").run().inputs(1).data().arena().slice(), 44u);
}

TEST_F(KeptTensorsTest, OfAnInputInPartsThoseAreBroughtThatLieElsewhere) {
  const auto first = Keep(1, 0);
  const auto second = Keep(2, 1);
  const auto third = Keep(3, 0);
  auto arrived = Request(4, "g");
  for (const auto& tensor : {first, second, third}) {
    auto& input = *arrived.message.add_inputs();
    input.mutable_spec()->set_name("x");
    input.set_continues(arrived.message.inputs_size() > 1);
    *input.mutable_data()->mutable_kept() = tensor;
  }
  EXPECT_THAT(Seen(arrived), ElementsAre("order 1 export"));
  EXPECT_THAT(See(1, "export", ExportedTo(44)),
              ElementsAre("order 0 swap-in packed-g", "order 0 run packed-g"));
  const auto& order = OrderOf(0, "run").run();
  ASSERT_EQ(order.inputs_size(), 3);
  EXPECT_EQ(order.inputs(0).data().kept().number(), first.number());
  EXPECT_EQ(order.inputs(1).data().arena().slice(), 44u);
  EXPECT_TRUE(order.inputs(1).continues());
  EXPECT_EQ(order.inputs(2).data().kept().number(), third.number());
  See(0, "swap-in");
  proto::WorkerOutcome unread;
  unread.set_code(static_cast<int>(absl::StatusCode::kDataLoss));
  See(0, "run", unread);
  EXPECT_THAT(answer_.served().lost_inputs(), ElementsAre("x")) << "the exported part, whose worker is gone";
}

TEST_F(KeptTensorsTest, WhatWasReleasedOrIsAnotherDaemonsIsLostByName) {
  auto kept = Keep(1, 1);
  auto other = kept;
  other.set_daemon(2);
  EXPECT_THAT(Read(2, {kept, other}), ElementsAre("answer 2 DATA_LOSS"));
  EXPECT_THAT(answer_.served().lost_inputs(), ElementsAre("x1"));
  Release(1);
  EXPECT_THAT(Read(3, {kept}), ElementsAre("answer 3 DATA_LOSS"));
  EXPECT_THAT(answer_.served().lost_inputs(), ElementsAre("x0"));
  other = kept;
  other.set_node("another");
  EXPECT_THAT(Read(4, {other}), ElementsAre("answer 4 DATA_LOSS"));
}

TEST_F(KeptTensorsTest, AWorkerThatDiesTakesThemAlongAndTheirReadersLearnIt) {
  const auto kept = Keep(1, 1);
  EXPECT_THAT(Read(2, {kept}), ElementsAre("order 1 swap-in packed-g", "order 1 run packed-g"));
  EXPECT_THAT(Seen(LostWorker(1)), Contains("answer 2 DATA_LOSS"));
  EXPECT_THAT(answer_.served().lost_inputs(), ElementsAre("x0"));
  EXPECT_THAT(Read(3, {kept}), ElementsAre("answer 3 DATA_LOSS"));
  EXPECT_THAT(Release(1), IsEmpty());
}

TEST_F(KeptTensorsTest, AnExportThatItsWorkerDoesNotSurviveIsALossToo) {
  const auto here = Keep(1, 0);
  const auto there = Keep(2, 1);
  auto more = here;
  more.set_length(kTensor / 2);
  Read(3, {more, there});
  Report(0, proto::ExecutorReport::DOWN);
  EXPECT_THAT(See(0, "export", Failed(absl::StatusCode::kUnavailable)), ElementsAre("answer 3 DATA_LOSS"));
  EXPECT_THAT(answer_.served().lost_inputs(), ElementsAre("x0"));
}

TEST_F(KeptTensorsTest, AFullArenaIsToldAsItIs) {
  const auto here = Keep(1, 0);
  const auto there = Keep(2, 1);
  auto more = there;
  more.set_length(kTensor / 2);
  Read(3, {here, more});
  EXPECT_THAT(See(1, "export", Failed(absl::StatusCode::kResourceExhausted)),
              ElementsAre("answer 3 RESOURCE_EXHAUSTED"));
  EXPECT_THAT(answer_.served().lost_inputs(), IsEmpty());
}

TEST_F(KeptTensorsTest, ARequestThatIsCancelledDoesNotWaitForItsExports) {
  const auto here = Keep(1, 0);
  const auto there = Keep(2, 1);
  auto more = there;
  more.set_length(kTensor / 2);
  Read(3, {here, more});
  EXPECT_THAT(Seen(RequestCancelled{{7, 3}}), ElementsAre("answer 3 CANCELLED"));
  EXPECT_THAT(See(1, "export", ExportedTo(44)), IsEmpty());
}

TEST_F(KeptTensorsTest, ABusyGpuIsLeftWhenMovingIsFaster) {
  const auto kept = Keep(1, 1);
  // A second of work waits at GPU 1, as far as the node knows.
  proto::WorkerOutcome slow;
  slow.set_end_ns(Duration(std::chrono::seconds(1)).count());
  slow.mutable_run()->set_compute_ns(Duration(std::chrono::seconds(1)).count());
  auto arrived = Request(2, "f");
  arrived.message.set_gpu(1);
  On(std::move(arrived));
  See(1, "run", slow);
  for (Ask ask = 3; ask <= 5; ++ask) {
    auto more = Request(ask, "f");
    more.message.set_gpu(1);
    On(std::move(more));
  }
  EXPECT_THAT(Read(6, {kept}), ElementsAre("order 1 export"));
  EXPECT_THAT(See(1, "export", ExportedTo(44)),
              ElementsAre("order 0 swap-in packed-g", "order 0 run packed-g"));
}

TEST_F(KeptTensorsTest, RoutersHaveThemExportedForOthers) {
  const auto a = Keep(1, 0);
  const auto b = Keep(2, 1);
  ExportAsked asked;
  asked.ask = 50;
  *asked.wish.add_tensors() = b;
  *asked.wish.add_tensors() = a;
  EXPECT_THAT(Seen(asked), ElementsAre("order 1 export", "order 0 export"));
  EXPECT_EQ(OrderOf(1, "export").export_tensor().meter(), proto::UsageKey("", "f"));
  EXPECT_THAT(See(0, "export", ExportedTo(10)), IsEmpty());
  EXPECT_THAT(See(1, "export", ExportedTo(11)), ElementsAre("exported 50 OK"));
  EXPECT_EQ(exported_.places(0).arena().slice(), 11u);
  EXPECT_EQ(exported_.places(1).arena().slice(), 10u);
  Release(1);
  EXPECT_THAT(Seen(asked), ElementsAre("order 1 export"));
  EXPECT_THAT(See(1, "export", ExportedTo(11)), ElementsAre("exported 50 NOT_FOUND"));
}

TEST_F(KeptTensorsTest, TheTensorsOfARouterGoWithIt) {
  const auto kept = Keep(1, 1);
  EXPECT_THAT(On(RouterLost{7}), Contains("order 1 release"));
  EXPECT_THAT(OrderOf(1, "release").release().kept(), ElementsAre(kept.number()));
  Hello(7);
  EXPECT_THAT(Read(2, {kept}), Contains("answer 2 DATA_LOSS"));
}

TEST_F(KeptTensorsTest, WhatAnAnswerDoesNotCarryIsReleased) {
  auto arrived = Request(1, "f");
  arrived.message.add_keep("y");
  arrived.message.add_outputs("z");
  arrived.message.set_gpu(1);
  On(std::move(arrived));
  Answered(1, "swap-in");
  auto outcome = Left(OrderOf(1, "run").run().keep(0).number());
  outcome.mutable_run()->add_outputs()->mutable_spec()->set_name("z");
  EXPECT_THAT(See(1, "run", outcome), ElementsAre("order 1 release", "answer 1 OK"));
  EXPECT_EQ(OrderOf(1, "release").release().kept_size(), 1);
}

// --- GPUs with a link between them ---

class LinkedGpusTest : public KeptTensorsTest {
 protected:
  static NodeSettings Linked() {
    auto settings = OfDaemon(3);
    settings.topology = *Topology::Parse("link:0-1=50GB");
    return settings;
  }
  LinkedGpusTest() : KeptTensorsTest(Linked()) {}
  // A request of "g" on GPU 0, which reads a half of the second one.
  Lines ReadOnFirst(Ask ask, const proto::KeptTensor& here, const proto::KeptTensor& there) {
    auto arrived = Request(ask, "g");
    arrived.message.set_gpu(0);
    for (const auto& [name, tensor] : {std::pair("x0", here), std::pair("x1", HalfOf(there))}) {
      auto& input = *arrived.message.add_inputs();
      input.mutable_spec()->set_name(name);
      *input.mutable_data()->mutable_kept() = tensor;
    }
    return Seen(std::move(arrived));
  }
  static proto::KeptTensor HalfOf(proto::KeptTensor tensor) {
    tensor.set_length(kTensor / 2);
    return tensor;
  }
  static proto::WorkerOutcome PinnedAs(std::uint64_t pin) {
    proto::WorkerOutcome outcome;
    outcome.mutable_pin()->set_pin(pin);
    outcome.mutable_pin()->mutable_memory()->mutable_memory()->set_arena(pin);
    return outcome;
  }
};

TEST_F(LinkedGpusTest, ATensorComesOverTheLinkAndItsReadersShareTheCopy) {
  const auto here = Keep(1, 0);
  const auto there = Keep(2, 1);
  EXPECT_THAT(ReadOnFirst(3, here, there), ElementsAre("order 1 pin"));
  EXPECT_EQ(OrderOf(1, "pin").pin().tensor().length(), kTensor / 2);
  EXPECT_THAT(ReadOnFirst(4, here, there), IsEmpty()) << "it is on its way";
  EXPECT_THAT(See(1, "pin", PinnedAs(77)), ElementsAre("order 0 pull"));
  const auto pull = OrderOf(0, "pull").pull();
  EXPECT_EQ(pull.length(), kTensor / 2);
  EXPECT_EQ(pull.from_gpu(), 1u);
  EXPECT_EQ(pull.meter(), proto::UsageKey("", "f")) << "the function that computed it pays for the copy";
  EXPECT_EQ(pull.pinned().memory().arena(), 77u);
  EXPECT_THAT(See(0, "pull"), ElementsAre("order 1 return", "order 0 swap-in packed-g",
                                          "order 0 run packed-g", "order 0 run packed-g"));
  EXPECT_EQ(OrderOf(1, "return").unpin().pin(), 77u);
  const auto& copied = OrderOf(0, "run").run().inputs(1).data().kept();
  EXPECT_EQ(copied.number(), pull.number());
  EXPECT_EQ(copied.offset(), 0u);
  EXPECT_EQ(copied.length(), kTensor / 2);
  EXPECT_THAT(ReadOnFirst(5, here, there), ElementsAre("order 0 run packed-g")) << "the copy is there";
  EXPECT_EQ(OrderOf(0, "run").run().inputs(1).data().kept().number(), pull.number());
  EXPECT_THAT(Release(2), ElementsAre("order 0 release", "order 1 release"))
      << "the copy goes with its tensor";
  EXPECT_THAT(OrderOf(0, "release").release().kept(), ElementsAre(pull.number()));
  EXPECT_THAT(ReadOnFirst(6, here, there), ElementsAre("answer 6 DATA_LOSS"));
  EXPECT_THAT(answer_.served().lost_inputs(), ElementsAre("x1"));
}

TEST_F(LinkedGpusTest, WhatCannotBePinnedOrFindsNoRoomIsExported) {
  const auto here = Keep(1, 0);
  const auto there = Keep(2, 1);
  ReadOnFirst(3, here, there);
  EXPECT_THAT(See(1, "pin", Failed(absl::StatusCode::kFailedPrecondition)), ElementsAre("order 1 export"));
  EXPECT_THAT(See(1, "export", ExportedTo(44)),
              ElementsAre("order 0 swap-in packed-g", "order 0 run packed-g"));
  EXPECT_EQ(OrderOf(0, "run").run().inputs(1).data().arena().slice(), 44u);
  ReadOnFirst(4, here, there);
  See(1, "pin", PinnedAs(77));
  EXPECT_THAT(See(0, "pull", Failed(absl::StatusCode::kResourceExhausted)),
              ElementsAre("order 1 return", "order 1 export"));
}

TEST_F(LinkedGpusTest, ASourceThatIsLostBeforeItIsCopiedIsALoss) {
  const auto here = Keep(1, 0);
  const auto there = Keep(2, 1);
  ReadOnFirst(3, here, there);
  See(1, "pin", PinnedAs(77));
  Seen(LostWorker(1));
  EXPECT_THAT(See(0, "pull", Failed(absl::StatusCode::kUnavailable)), ElementsAre("answer 3 DATA_LOSS"));
  EXPECT_THAT(answer_.served().lost_inputs(), ElementsAre("x1"));
}

TEST_F(LinkedGpusTest, ACopyGoesWithTheWorkerThatKeepsItsTensor) {
  const auto here = Keep(1, 0);
  const auto there = Keep(2, 1);
  ReadOnFirst(3, here, there);
  See(1, "pin", PinnedAs(77));
  See(0, "pull");
  const auto copy = OrderOf(0, "pull").pull().number();
  EXPECT_THAT(Seen(LostWorker(1)), Contains("order 0 release"));
  EXPECT_THAT(OrderOf(0, "release").release().kept(), ElementsAre(copy));
}

// The tensor is there still, so that nothing has to be computed anew.
TEST_F(LinkedGpusTest, AReaderThatLosesItsCopyIsSentAnew) {
  const auto kept = Keep(1, 1);
  auto arrived = Request(2, "g");
  arrived.message.set_gpu(0);
  auto& input = *arrived.message.add_inputs();
  input.mutable_spec()->set_name("x0");
  *input.mutable_data()->mutable_kept() = kept;
  EXPECT_THAT(Seen(std::move(arrived)), ElementsAre("order 1 pin"));
  See(1, "pin", PinnedAs(77));
  EXPECT_THAT(See(0, "pull"), Contains("order 0 run packed-g"));
  EXPECT_THAT(Seen(LostWorker(0)), ElementsAre("bounce 2 BOUNCE_NO_INPUTS"));
  EXPECT_THAT(Read(3, {kept}), ElementsAre("order 1 swap-in packed-g", "order 1 run packed-g"));
}

TEST_F(LinkedGpusTest, ADestinationThatIsLostInTheMiddleLeavesNoPin) {
  const auto here = Keep(1, 0);
  const auto there = Keep(2, 1);
  ReadOnFirst(3, here, there);
  Seen(LostWorker(0));
  EXPECT_THAT(See(1, "pin", PinnedAs(77)), Contains("order 1 return"));
  EXPECT_EQ(OrderOf(1, "return").unpin().pin(), 77u);
}

TEST_F(LinkedGpusTest, ATensorThatIsReleasedOnItsWayGoesWhenItHasCome) {
  const auto here = Keep(1, 0);
  const auto there = Keep(2, 1);
  ReadOnFirst(3, here, there);
  See(1, "pin", PinnedAs(77));
  Seen(RequestCancelled{{7, 3}});
  Release(2);
  EXPECT_THAT(See(0, "pull"), ElementsAre("order 1 return", "order 0 release"));
  EXPECT_THAT(OrderOf(0, "release").release().kept(), ElementsAre(OrderOf(0, "pull").pull().number()));
}

// --- where a request begins first ---

TEST(InputPlacement, WeighsWhatWaitsWhatIsSwappedAndWhatIsMoved) {
  const auto choose = [](std::vector<InputOffer> offers) { return ChooseForInputs(offers); };
  const auto far = [](std::uint32_t device, milliseconds move) {
    return InputOffer{.device = device, .move = move, .linked = false};
  };
  EXPECT_EQ(choose({far(0, milliseconds(4)), {.device = 1, .kept = MiB(20)}}), 1u);
  EXPECT_EQ(choose({far(0, milliseconds(4)), {.device = 1, .kept = MiB(20), .wait = milliseconds(4)}}), 1u);
  EXPECT_EQ(choose({far(0, milliseconds(4)), {.device = 1, .kept = MiB(20), .wait = milliseconds(5)}}),
            std::nullopt)
      << "any other GPU begins it earlier";
  const InputOffer near{.device = 0, .move = milliseconds(4)};
  EXPECT_EQ(choose({near, {.device = 1, .kept = MiB(20), .wait = milliseconds(5)}}), 0u)
      << "links lead there from all of them";
  EXPECT_EQ(choose({{.device = 0, .kept = MiB(5), .move = milliseconds(3)},
                    {.device = 1, .kept = MiB(15), .swap = milliseconds(3), .move = milliseconds(1)}}),
            0u);
  EXPECT_EQ(choose({{.device = 0, .kept = MiB(10), .move = milliseconds(2)},
                    {.device = 1, .kept = MiB(10), .move = milliseconds(2)}}),
            0u);
  EXPECT_EQ(choose({}), std::nullopt);
}

}  // namespace
}  // namespace troupe::node::kept_tensors_test
