// Tensors that runs leave on the device for later runs.
#include "gpu/worker/tensor_store.hpp"

#include "gmock/gmock.h"
#include "tests/unit/gpu_worker/runner_fixture.hpp"

namespace troupe::gpu::test {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kTensorRows = 8192;  // 128 KiB, more than a message carries
constexpr std::uint64_t kBytes = kTensorRows * kColumns * sizeof(float);

class TensorStoreTest : public RunnerTest {
 protected:
  explicit TensorStoreTest(const IntermediatesOptions& intermediates = {})
      : RunnerTest(MakePlain, {.group = KiB(256), .block = KiB(64)}, {}, {}, intermediates) {}

  void Bring(std::initializer_list<std::int64_t> rows) {
    copy_ = PlaceSmall(*host_, "m");
    SwapIn(1, copy_);
    EXPECT_EQ(Code(1), 0);
    for (const std::int64_t each : rows) {
      const std::size_t plans = preparer_->cache().size();
      Prepare(0, copy_, each);
      PumpUntilStage(plans + 1);
    }
  }
  static proto::Tensor Kept(std::uint64_t number, std::int64_t first_row = 0,
                            std::int64_t rows = kTensorRows) {
    proto::Tensor tensor;
    *tensor.mutable_spec() = Spec("x", {rows, kColumns});
    auto& kept = *tensor.mutable_data()->mutable_kept();
    kept.set_number(number);
    kept.set_offset(static_cast<std::uint64_t>(first_row) * kColumns * sizeof(float));
    kept.set_length(static_cast<std::uint64_t>(rows) * kColumns * sizeof(float));
    return tensor;
  }
  // A run whose output stays under `number`.
  void Keep(std::uint64_t sequence, std::uint64_t number, std::optional<proto::Tensor> input = {}) {
    keep_ = number;
    input_ = std::move(input);
    Run(sequence, "m", kTensorRows);
    keep_ = 0;
    input_.reset();
    EXPECT_EQ(Code(sequence), 0) << outcomes_[sequence].message();
  }
  // A run over a kept tensor, whose output leaves the device.
  void Read(std::uint64_t sequence, const proto::Tensor& input) {
    input_ = input;
    Run(sequence, "m", kTensorRows);
    input_.reset();
  }
  std::vector<float> Floats(const proto::TensorRef& ref) {
    const auto data = channel_->FetchHere(ref);
    EXPECT_TRUE(data.ok()) << data.status();
    std::vector<float> values(data->bytes().size() / sizeof(float));
    std::memcpy(values.data(), data->bytes().data(), data->bytes().size());
    return values;
  }
  std::vector<float> TakeOutput(std::uint64_t sequence) {
    EXPECT_EQ(Code(sequence), 0) << outcomes_[sequence].message();
    const auto& ref = outcomes_[sequence].run().outputs(0).data();
    auto values = Floats(ref);
    EXPECT_TRUE(channel_->Release(ref).ok());
    return values;
  }
  // What `times` runs make of counting numbers, one after the other: each adds 1, 2, 3 or makes 0 of the last column.
  static std::vector<float> After(int times, std::int64_t first_row = 0, std::int64_t rows = kTensorRows) {
    std::vector<float> values;
    constexpr auto kWidth = static_cast<std::int64_t>(kColumns);
    for (std::int64_t i = first_row * kWidth; i < (first_row + rows) * kWidth; ++i) {
      float value = static_cast<float>(i);
      for (int k = 0; k < times; ++k) value = std::max(0.0F, value + SmallBias(i % kWidth));
      values.push_back(value);
    }
    return values;
  }
  static float SmallBias(std::int64_t column) {
    float weights[kColumns];
    std::memcpy(weights, SmallWeights(1).data(), sizeof(weights));
    return weights[column];
  }
  absl::StatusOr<proto::ArenaRef> Export(const TensorStore::Part& part) {
    std::optional<absl::StatusOr<proto::ArenaRef>> place;
    tensors_->Export(part, [&](const absl::StatusOr<proto::ArenaRef>& answer) { place = answer; });
    while (!place && !HasFatalFailure()) PumpOnce();
    return *place;
  }
  void ExpectNothingLeft() {
    EvictAll();
    EXPECT_EQ(memory_->memory().free, memory_->memory().total);
    EXPECT_EQ(tensors_->size(), 0u);
    EXPECT_EQ(tensors_->on_device(), Bytes(0));
    EXPECT_EQ(tensors_->kept(), Bytes(0));
    EXPECT_EQ(channel_->used(), Bytes(0));
  }

  proto::HostCopy copy_;
};

TEST_F(TensorStoreTest, TheNextRunReadsWhatTheLastLeftWithoutACopy) {
  Bring({kTensorRows});
  Keep(10, 7);
  EXPECT_EQ(outcomes_[10].bytes(), kBytes) << "its input came, and its output stayed";
  EXPECT_EQ(outcomes_[10].run().outputs(0).data().kept().number(), 7u);
  EXPECT_EQ(outcomes_[10].run().outputs(0).data().kept().length(), kBytes);
  EXPECT_EQ(channel_->used(), Bytes(0));
  Read(11, Kept(7));
  EXPECT_EQ(TakeOutput(11), After(2));
  EXPECT_EQ(outcomes_[11].bytes(), kBytes) << "its output alone left";
  Keep(12, 8, Kept(7));
  EXPECT_EQ(outcomes_[12].bytes(), 0u);
  tensors_->Drop(7);
  tensors_->Drop(7);
  Read(13, Kept(8));
  EXPECT_EQ(TakeOutput(13), After(3));
  tensors_->Drop(8);
  ExpectNothingLeft();
}

TEST_F(TensorStoreTest, SmallOutputsTravelInTheMessage) {
  Bring({1});
  keep_ = 7;
  Run(10, "m", 1);
  EXPECT_EQ(Code(10), 0);
  EXPECT_TRUE(outcomes_[10].run().outputs(0).data().has_inlined());
  EXPECT_EQ(tensors_->size(), 0u);
  ExpectNothingLeft();
}

TEST_F(TensorStoreTest, APartIsReadInPlaceOrWhereItIsAligned) {
  Bring({kTensorRows, 4, 3});
  Keep(10, 7);
  std::uint64_t sequence = 20;
  for (const auto& [first, rows] : {std::pair(4, 4), std::pair(1, 3)}) {  // at 64 bytes, and at 16
    keep_ = sequence;                                                     // small: it travels in the message
    input_ = Kept(7, first, rows);
    Run(sequence, "m", rows);
    EXPECT_EQ(Output(sequence), After(2, first, rows));
    EXPECT_EQ(outcomes_[sequence].bytes(), rows * kColumns * sizeof(float));
    ++sequence;
  }
  tensors_->Drop(7);
  ExpectNothingLeft();
}

TEST_F(TensorStoreTest, WhatIsNotThereIsDataLossAndWhatIsTooLongIsRefused) {
  Bring({kTensorRows});
  Read(10, Kept(7));
  EXPECT_EQ(Code(10), CodeOf(absl::StatusCode::kDataLoss));
  EXPECT_THAT(outcomes_[10].message(), HasSubstr("input x: this worker keeps no tensor 7"));
  Keep(11, 7);
  Read(12, Kept(7, 1));
  EXPECT_EQ(Code(12), CodeOf(absl::StatusCode::kDataLoss));
  EXPECT_THAT(outcomes_[12].message(),
              HasSubstr("131072 bytes from 16 of tensor 7 were asked for, which has 131072"));
  EXPECT_EQ(Export({.number = 7, .offset = Bytes(~std::uint64_t{0}), .length = Bytes(2)}).status().code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_EQ(Export({.number = 8, .length = Bytes(1)}).status().code(), absl::StatusCode::kNotFound);
  tensors_->Drop(7);
  ExpectNothingLeft();
}

TEST_F(TensorStoreTest, ARunThatFailsLeavesNothing) {
  Bring({kTensorRows});
  gate_->Set(true);
  Run(10, "m", kTensorRows);
  keep_ = 7;
  Run(11, "m", kTensorRows);
  runner_->Cancel(11);
  keep_ = 0;
  gate_->Set(false);
  EXPECT_EQ(Code(11), CodeOf(absl::StatusCode::kCancelled));
  TakeOutput(10);
  ExpectNothingLeft();
}

TEST_F(TensorStoreTest, WhatARunReadsIsThereUntilItHasEnded) {
  Bring({kTensorRows});
  Keep(10, 7);
  gate_->Set(true);
  Read(11, Kept(7));
  tensors_->Drop(7);
  EXPECT_EQ(tensors_->MakeRoom(MiB(4)), Bytes(0)) << "a run reads it";
  EXPECT_EQ(tensors_->size(), 1u);
  Read(12, Kept(7));
  EXPECT_EQ(Code(12), CodeOf(absl::StatusCode::kDataLoss)) << "it was dropped";
  gate_->Set(false);
  EXPECT_EQ(TakeOutput(11), After(2));
  ExpectNothingLeft();
}

TEST_F(TensorStoreTest, AReaderElsewhereGetsACopyInTheArenaOnce) {
  Bring({kTensorRows});
  Keep(10, 7);
  const TensorStore::Part whole{.number = 7, .length = Bytes(kBytes)};
  const auto first = Export(whole);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(Export(whole)->slice(), first->slice());
  proto::TensorRef ref;
  *ref.mutable_arena() = *first;
  EXPECT_EQ(Floats(ref), After(1));
  const auto part = Export({.number = 7, .offset = Bytes(16), .length = Bytes(32)});
  ASSERT_TRUE(part.ok()) << part.status();
  *ref.mutable_arena() = *part;
  EXPECT_EQ(Floats(ref), After(1, 1, 2));
  Read(11, Kept(7));
  EXPECT_EQ(tensors_->bytes_out(), Bytes(kBytes + 32));
  EXPECT_EQ(TakeOutput(11), After(2)) << "the device has it still";
  tensors_->Drop(7);
  ExpectNothingLeft();
}

TEST_F(TensorStoreTest, ACopyForAReaderEndsThoughTheTensorIsDropped) {
  Bring({kTensorRows});
  Keep(10, 7);
  std::optional<absl::StatusOr<proto::ArenaRef>> place;
  tensors_->Export({.number = 7, .length = Bytes(kBytes)}, [&](const auto& answer) { place = answer; });
  tensors_->Drop(7);
  while (!place) PumpOnce();
  EXPECT_EQ(place->status().code(), absl::StatusCode::kNotFound);
  ExpectNothingLeft();
}

TEST_F(TensorStoreTest, WhatWeightsNeedMovesToTheArenaAndIsReadFromThere) {
  Bring({kTensorRows});
  Keep(10, 7);
  Keep(11, 8, Kept(7));
  const auto large = PlaceSmall(*host_, "large", 1, (MiB(4) - KiB(100)).count());
  SwapIn(12, large);
  EXPECT_EQ(Code(12), 0) << outcomes_[12].message();
  EXPECT_GE(tensors_->moved(), Bytes(kBytes));
  EXPECT_EQ(tensors_->size(), 2u);
  const Bytes moved = tensors_->moved();
  residency_->Evict("large", ReplyFor(13));
  Read(14, Kept(7));
  EXPECT_EQ(TakeOutput(14), After(2));
  Read(15, Kept(8));
  EXPECT_EQ(TakeOutput(15), After(3));
  EXPECT_EQ(tensors_->moved(), moved);
  const auto part = Export({.number = 7, .offset = Bytes(16), .length = Bytes(32)});
  proto::TensorRef ref;
  *ref.mutable_arena() = part.value();
  EXPECT_EQ(Floats(ref), After(1, 1, 2));
  tensors_->Drop(7);
  tensors_->Drop(8);
  ExpectNothingLeft();
}

TEST_F(TensorStoreTest, AnInputInPartsComesTogetherWhereverTheyLie) {
  constexpr std::int64_t kOdd = 3;  // what follows does not begin at 64 bytes
  constexpr std::int64_t kAll = 2 * kTensorRows + kOdd + 2;
  Bring({kTensorRows, kAll});
  Keep(10, 7);
  EXPECT_EQ(tensors_->MakeRoom(Bytes(1)), Bytes(kBytes));
  Keep(11, 8, Kept(7));
  proto::Tensor in_arena = SmallInput(2);
  auto room = channel_->ReserveSlice(Bytes(in_arena.data().inlined().size()));
  ASSERT_TRUE(room.ok()) << room.status();
  std::ranges::copy(std::as_bytes(std::span(in_arena.data().inlined())), room->bytes().begin());
  *in_arena.mutable_data() = room->Commit();
  more_ = {SmallInput(kOdd), Kept(8), in_arena};
  Keep(12, 9, Kept(7));  // of the host, then of the message, of the device, of the arena
  more_.clear();
  EXPECT_EQ(outcomes_[12].bytes(), kBytes + (kOdd + 2) * kColumns * sizeof(float))
      << "what came over the link";
  std::vector<float> whole;
  for (const std::vector<float>& part : {After(3), After(2, 0, kOdd), After(4), After(2, 0, 2)})
    whole.insert(whole.end(), part.begin(), part.end());
  std::uint64_t sequence = 13;
  for (const std::int64_t row : {std::int64_t{0}, kTensorRows, kAll - kTensorRows}) {
    Read(sequence, Kept(9, row));
    const auto first = whole.begin() + row * static_cast<std::int64_t>(kColumns);
    EXPECT_EQ(TakeOutput(sequence++), std::vector<float>(first, first + kBytes / sizeof(float))) << row;
  }
  more_ = {Kept(6)};
  Read(16, Kept(8));
  EXPECT_EQ(Code(16), CodeOf(absl::StatusCode::kDataLoss)) << "one part is not there";
  more_.clear();
  ASSERT_TRUE(channel_->Release(in_arena.data()).ok());
  for (const std::uint64_t number : {7, 8, 9}) tensors_->Drop(number);
  ExpectNothingLeft();
}

TEST_F(TensorStoreTest, LargeTensorsMoveFirst) {
  Bring({kTensorRows, 2 * kTensorRows});
  Keep(10, 7);
  keep_ = 8;
  Run(11, "m", 2 * kTensorRows);
  EXPECT_EQ(Code(11), 0);
  EXPECT_EQ(tensors_->MakeRoom(Bytes(1)), Bytes(2 * kBytes));
  EXPECT_EQ(tensors_->on_device(), Bytes(kBytes));
  tensors_->DropAll();
  ExpectNothingLeft();
}

TEST_F(TensorStoreTest, WhatTheDeviceHasNoRoomForLeavesItWithItsRun) {
  Bring({kTensorRows});
  std::uint64_t number = 100;
  for (Keep(number, number); outcomes_[number].run().outputs(0).data().has_kept(); Keep(number, number)) {
    ASSERT_LE(tensors_->on_device(), MiB(2)) << "half of the device's memory";
    ++number;
  }
  EXPECT_GT(number, 102u);
  EXPECT_EQ(TakeOutput(number), After(1));
  tensors_->DropAll();
  ExpectNothingLeft();
}

TEST_F(TensorStoreTest, AFullArenaKeepsTensorsOnTheDevice) {
  Bring({kTensorRows});
  Keep(10, 7);
  auto all = channel_->ReserveSlice(MiB(4) - KiB(64));
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(tensors_->MakeRoom(Bytes(1)), Bytes(0));
  EXPECT_EQ(Export({.number = 7, .length = Bytes(kBytes)}).status().code(),
            absl::StatusCode::kResourceExhausted);
  *all = {};
  Read(11, Kept(7));
  EXPECT_EQ(TakeOutput(11), After(2));
  tensors_->Drop(7);
  ExpectNothingLeft();
}

constexpr Time kStart{std::chrono::seconds(100)};

TEST_F(TensorStoreTest, AsMuchAsWasLackingIsCopiedAheadAndGoesAtOnce) {
  Bring({kTensorRows});
  Keep(10, 7);
  Keep(11, 8, Kept(7));
  tensors_->Tick(kStart);
  EXPECT_EQ(tensors_->bytes_out(), Bytes(0)) << "nothing was lacking";
  EXPECT_EQ(tensors_->MakeRoom(Bytes(1)), Bytes(kBytes));
  tensors_->Tick(kStart + std::chrono::milliseconds(1));
  ASSERT_TRUE(Export({.number = 8, .length = Bytes(kBytes)}).ok());
  EXPECT_EQ(tensors_->bytes_out(), Bytes(2 * kBytes)) << "both were copied once";
  EXPECT_EQ(tensors_->on_device(), Bytes(kBytes)) << "and one is on the device as well";
  auto all = channel_->ReserveSlice(MiB(4) - Bytes(3 * kBytes));
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(tensors_->MakeRoom(Bytes(1)), Bytes(kBytes)) << "no room in the arena is needed any more";
  EXPECT_EQ(tensors_->bytes_out(), Bytes(2 * kBytes));
  *all = {};
  Read(12, Kept(8));
  EXPECT_EQ(TakeOutput(12), After(3));
  tensors_->DropAll();
  ExpectNothingLeft();
}

TEST_F(TensorStoreTest, MemoryThatIsNeededWaitsForACopyThatIsUnderWay) {
  Bring({kTensorRows});
  Keep(10, 7);
  Keep(11, 8, Kept(7));
  EXPECT_EQ(tensors_->MakeRoom(Bytes(1)), Bytes(kBytes));
  tensors_->Tick(kStart);
  EXPECT_EQ(tensors_->MakeRoom(Bytes(1)), Bytes(kBytes));
  EXPECT_EQ(tensors_->bytes_out(), Bytes(2 * kBytes));
  EXPECT_EQ(tensors_->on_device(), Bytes(0));
  Read(12, Kept(8));
  EXPECT_EQ(TakeOutput(12), After(3));
  tensors_->DropAll();
  ExpectNothingLeft();
}

TEST_F(TensorStoreTest, NothingIsCopiedAheadWhenNothingHasBeenLackingForAWhile) {
  Bring({kTensorRows});
  Keep(10, 7);
  EXPECT_EQ(tensors_->MakeRoom(Bytes(1)), Bytes(kBytes));
  for (const int second : {0, 2, 4}) tensors_->Tick(kStart + std::chrono::seconds(second));
  Keep(11, 8, Kept(7));
  tensors_->Tick(kStart + std::chrono::seconds(5));
  EXPECT_EQ(tensors_->bytes_out(), Bytes(kBytes));
  tensors_->DropAll();
  ExpectNothingLeft();
}

TEST_F(TensorStoreTest, ANumberThatIsTakenKeepsItsTensor) {
  Bring({kTensorRows});
  Keep(10, 7);
  Keep(11, 7, Kept(7));
  Read(12, Kept(7));
  EXPECT_EQ(TakeOutput(12), After(2));
  tensors_->Drop(7);
  ExpectNothingLeft();
}

class HostOnlyTest : public TensorStoreTest {
 protected:
  HostOnlyTest() : TensorStoreTest({.name = "host-only"}) {}
};

TEST_F(HostOnlyTest, EveryOutputLeavesTheDevice) {
  Bring({kTensorRows});
  Keep(10, 7);
  EXPECT_TRUE(outcomes_[10].run().outputs(0).data().has_arena());
  EXPECT_EQ(TakeOutput(10), After(1));
  ExpectNothingLeft();
}

class NoPressureTest : public TensorStoreTest {
 protected:
  NoPressureTest() : TensorStoreTest({.name = "no-pressure"}) {}
};

TEST_F(NoPressureTest, TensorsMoveWhenTheirMemoryIsNeededAndNotBefore) {
  Bring({kTensorRows});
  Keep(10, 7);
  Keep(11, 8, Kept(7));
  EXPECT_EQ(tensors_->MakeRoom(Bytes(1)), Bytes(kBytes));
  tensors_->Tick(kStart);
  EXPECT_EQ(tensors_->bytes_out(), Bytes(kBytes));
  tensors_->DropAll();
  ExpectNothingLeft();
}

// Three tensors find room in an eighth of 4 MiB.
class StaticTest : public TensorStoreTest {
 protected:
  StaticTest() : TensorStoreTest({.name = "static"}) {}
};

TEST_F(StaticTest, ThereIsRoomInThePartThatIsSetAsideAndNowhereElse) {
  const Bytes free = memory_->memory().free;
  EXPECT_LE(free, MiB(4) - Bytes(MiB(4).count() / 100 * 12));
  Bring({kTensorRows});
  for (const std::uint64_t number : {10, 11, 12}) Keep(number, number);
  EXPECT_EQ(tensors_->on_device(), Bytes(3 * kBytes));
  Keep(13, 13);
  EXPECT_EQ(TakeOutput(13), After(1)) << "it has left the device";
  EXPECT_EQ(tensors_->MakeRoom(Bytes(1)), Bytes(0)) << "they stay";
  tensors_->Drop(11);
  Keep(14, 14, Kept(12));
  Read(15, Kept(14));
  EXPECT_EQ(TakeOutput(15), After(3));
  SwapIn(16, PlaceSmall(*host_, "large", 1, (MiB(4) - KiB(400)).count()));
  EXPECT_EQ(Code(16), CodeOf(absl::StatusCode::kResourceExhausted)) << "it is set aside, used or not";
  tensors_->DropAll();
  EvictAll();
  EXPECT_EQ(memory_->memory().free, free);
  EXPECT_EQ(tensors_->on_device(), Bytes(0));
  EXPECT_EQ(channel_->used(), Bytes(0));
}

class NoMovementTest : public TensorStoreTest {
 protected:
  NoMovementTest() : TensorStoreTest({.name = "no-movement"}) {}
};

TEST_F(NoMovementTest, TensorsStayAndWeightsFindNoRoom) {
  Bring({kTensorRows});
  Keep(10, 7);
  SwapIn(12, PlaceSmall(*host_, "large", 1, (MiB(4) - KiB(100)).count()));
  EXPECT_EQ(Code(12), CodeOf(absl::StatusCode::kResourceExhausted));
  EXPECT_TRUE(outcomes_[12].has_no_fit());
  EXPECT_EQ(tensors_->moved(), Bytes(0));
  tensors_->Drop(7);
  ExpectNothingLeft();
}

}  // namespace
}  // namespace troupe::gpu::test
