// A worker takes over what the one before it left on its device: whole models only, once each was compared.
#include "gpu/worker/kept_weights.hpp"

#include <unistd.h>

#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "tests/unit/gpu_worker/runner_fixture.hpp"

namespace troupe::gpu::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

constexpr Bytes kDevice = MiB(4);
constexpr Bytes kKeptModel = KiB(600);  // three groups

// The memory that a daemon keeps, and the workers that come and go on it.
transport::MemoryFile& DeviceFile() {
  static std::optional<transport::MemoryFile> file;
  if (!file) file = *transport::MemoryFile::Create("device", kDevice + WeightRecord::Size());
  return *file;
}

class KeptWeightsTest : public RunnerTest {
 protected:
  static std::unique_ptr<Device> MakeKept(VirtualDeviceOptions options) {
    options.reserved = WeightRecord::Size();
    auto file = *transport::MemoryFile::Open(transport::UniqueFd(dup(DeviceFile().fd())),
                                             transport::MemoryFile::Access::kReadWrite);
    return *MakeVirtualDevice(std::move(options), std::move(file), nullptr);
  }
  explicit KeptWeightsTest(const MemoryOptions& memory = {})
      : RunnerTest(MakeKept, {.group = KiB(256), .block = KiB(64)}, memory) {
    std::ranges::fill(DeviceFile().bytes(), std::byte{0});
    NextWorker();
  }
  ~KeptWeightsTest() override { EndWorker(); }

  static std::shared_ptr<WeightRecord> Record() {
    return *WeightRecord::Open(transport::UniqueFd(dup(DeviceFile().fd())), WeightRecord::Size());
  }
  void EndWorker() {
    runner_.reset();
    preparer_.reset();
    residency_.reset();
    worker_device_.reset();
  }
  // The worker dies at this moment, and another one begins on the same memory.
  void NextWorker(const MemoryOptions& memory = {}) {
    EndWorker();
    outcomes_.clear();
    queue_ = *TaskQueue::Create();  // what the dead one has heard of is forgotten
    VirtualDeviceOptions options;
    options.builder = [gate = gate_](const proto::Model&, std::span<const std::byte>,
                                     std::span<const proto::TensorSpec> inputs,
                                     int) -> absl::StatusOr<std::unique_ptr<Plan>> {
      return std::make_unique<HeldPlan>(inputs[0].shape(0), gate);
    };
    worker_device_ = std::make_unique<WorkerDevice>(
        MakeKept(std::move(options)), *queue_,
        WorkerDevice::Options{.swap = {.group = KiB(256), .block = KiB(64)}, .memory = memory}, limits_,
        nullptr);
    device_ = worker_device_->device.get();
    links_ = &worker_device_->links;
    memory_ = &worker_device_->memory;
    tensors_ = &worker_device_->tensors;
    residency_ =
        std::make_unique<Residency>(*memory_, *queue_, *links_, limits_, BroadcastHandler::Setup{}, Record());
    preparer_ = std::make_unique<Preparer>(*device_, *queue_, Lanes(PageOf(page_)), limits_);
    runner_ = std::make_unique<Runner>(*worker_device_, *queue_, Lanes(PageOf(page_)), limits_, *residency_,
                                       *preparer_);
    residency_->Connect(
        {[this](const auto& digest, const auto& status) { runner_->ModelChanged(digest, status); },
         [this](const auto& digest) { return runner_->Wants(digest); },
         {}});
  }
  proto::HostCopy Place(const std::string& digest, float first = 1) {
    return PlaceSmall(*host_, digest, first, kKeptModel.count(), kKeptModel.count() - 64);
  }
  proto::HostCopy Bring(const std::string& digest, float first = 1) {
    const auto copy = Place(digest, first);
    SwapIn(next_, copy);
    EXPECT_EQ(Code(next_++), 0);
    return copy;
  }
  // Where the weights lie in the daemon's mapping of the device.
  std::byte* At(const std::string& digest) {
    std::vector<std::string> dropped;
    for (const RecordedWeights& weights : Record()->Read(dropped))
      if (weights.digest == digest) return DeviceFile().data() + weights.offset;
    ADD_FAILURE() << digest << " is not on record";
    return DeviceFile().data();
  }
  std::vector<std::string> OnRecord() {
    std::vector<std::string> dropped, digests;
    for (const RecordedWeights& weights : Record()->Read(dropped)) digests.push_back(weights.digest);
    return digests;
  }

  std::uint64_t next_ = 1;
};

TEST_F(KeptWeightsTest, AKeptModelRunsAndNothingIsCopied) {
  const auto copy = Bring("m");
  NextWorker();
  EXPECT_THAT(residency_->kept().All(), ElementsAre(Pair("m", kKeptModel)));
  EXPECT_EQ(residency_->kept().report().models(), 1u);
  EXPECT_EQ(residency_->kept().report().bytes(), kKeptModel.count());
  EXPECT_EQ(memory_->memory().total - memory_->memory().free, AlignUp(kKeptModel, Bytes(256)));
  Run(7, "m", 1, 0, 0, &copy);
  EXPECT_THAT(Output(7), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(residency_->swapped().models, 0u);
  EXPECT_EQ(residency_->swapped().bytes, Bytes(0));
  EXPECT_EQ(residency_->kept().size(), 0u) << "it is resident now";
  EXPECT_EQ(residency_->table().StateOf("m"), ModelTable::State::kResident);
  EvictAll();
  EXPECT_EQ(memory_->memory().free, memory_->memory().total);
  EXPECT_THAT(OnRecord(), IsEmpty());
}

TEST_F(KeptWeightsTest, ASwapInOfAKeptModelMovesNoByte) {
  const auto copy = Bring("m");
  NextWorker();
  SwapIn(7, copy);
  EXPECT_EQ(Code(7), 0);
  EXPECT_EQ(outcomes_[7].bytes(), 0u);
  EXPECT_EQ(residency_->swapped().bytes, Bytes(0));
}

TEST_F(KeptWeightsTest, AWorkerThatIsKilledAtOnceLosesNothing) {
  const auto copy = Bring("m");
  NextWorker();
  NextWorker();
  EXPECT_THAT(residency_->kept().All(), ElementsAre(Pair("m", kKeptModel)));
  Run(7, "m", 1, 0, 0, &copy);
  EXPECT_EQ(Code(7), 0);
  NextWorker();
  EXPECT_THAT(residency_->kept().All(), ElementsAre(Pair("m", kKeptModel)));
}

TEST_F(KeptWeightsTest, AByteThatDiffersIsFoundBeforeTheFirstRun) {
  const auto copy = Bring("m");
  for (int round = 0; round < 3; ++round) {
    At("m")[0] ^= std::byte{1};
    NextWorker();
    Run(7, "m", 1, 0, 0, &copy);
    EXPECT_EQ(Code(7), CodeOf(absl::StatusCode::kNotFound)) << "the node plans the run again";
    EXPECT_THAT(outcomes_[7].message(), HasSubstr("not those of the host copy"));
    EXPECT_EQ(residency_->table().StateOf("m"), ModelTable::State::kAbsent);
    EXPECT_EQ(memory_->memory().free, memory_->memory().total);
    EXPECT_THAT(OnRecord(), IsEmpty());
    SwapIn(8, copy);
    EXPECT_EQ(Code(8), 0);
    EXPECT_EQ(outcomes_[8].bytes(), kKeptModel.count());
    Run(9, "m", 1, 0, 0, &copy);
    EXPECT_THAT(Output(9), ElementsAre(0, 1, 2, 3));
  }
}

TEST_F(KeptWeightsTest, ASwapInBringsTheGroupsFromTheOneThatDiffersOn) {
  const auto copy = Bring("m");
  At("m")[KiB(300).count()] ^= std::byte{1};
  NextWorker();
  SwapIn(7, copy);
  Run(8, "m", 1, 0, 0, &copy);
  EXPECT_EQ(Code(7), 0);
  EXPECT_EQ(outcomes_[7].bytes(), (kKeptModel - KiB(256)).count()) << "the first group was whole";
  EXPECT_THAT(Output(8), ElementsAre(0, 1, 2, 3));
}

TEST_F(KeptWeightsTest, WhatTheHostCopyIsNotIsDropped) {
  Bring("m");
  const auto other = Place("m", 2);  // other weights under the same digest, which differ in the last group
  const auto longer = PlaceSmall(*host_, "m", 1, kKeptModel.count() + 64);
  NextWorker();
  SwapIn(8, other);
  EXPECT_EQ(Code(8), 0);
  EXPECT_EQ(outcomes_[8].bytes(), (kKeptModel - KiB(512)).count());
  NextWorker();
  Run(9, "m", 1, 0, 0, &longer);
  EXPECT_EQ(Code(9), CodeOf(absl::StatusCode::kNotFound)) << "it has another size";
  EXPECT_EQ(memory_->memory().free, memory_->memory().total);
}

TEST_F(KeptWeightsTest, ARunWithoutItsHostCopyCannotUseIt) {
  Bring("m");
  NextWorker();
  Run(7, "m");
  EXPECT_EQ(Code(7), CodeOf(absl::StatusCode::kNotFound));
  EXPECT_THAT(residency_->kept().All(), ElementsAre(Pair("m", kKeptModel))) << "it stays for one that has it";
}

TEST_F(KeptWeightsTest, AKeptModelCanBeEvicted) {
  Bring("m");
  NextWorker();
  residency_->Evict("m", ReplyFor(7));
  EXPECT_EQ(Code(7), 0);
  EXPECT_EQ(memory_->memory().free, memory_->memory().total);
  EXPECT_THAT(OnRecord(), IsEmpty());
  residency_->Evict("m", ReplyFor(8));
  EXPECT_EQ(Code(8), CodeOf(absl::StatusCode::kNotFound));
}

TEST_F(KeptWeightsTest, AModelThatIsComingOrHasGoneIsNotKept) {
  Bring("stays");
  Bring("goes");
  residency_->Evict("goes", ReplyFor(90));
  EXPECT_EQ(Code(90), 0);
  SwapIn(91, Place("comes"));  // its last group may be there, but it was not told to be
  NextWorker();
  EXPECT_THAT(residency_->kept().All(), ElementsAre(Pair("stays", kKeptModel)));
  EXPECT_EQ(residency_->kept().report().dropped(), 0u);
}

TEST_F(KeptWeightsTest, AModelThatWasMovedIsKeptWhereItIs) {
  const auto copy = Bring("m");
  std::byte* const before = At("m");
  ModelTable& table = residency_->table();
  const ModelTable::Hold held = table.Acquire("m");
  const auto to = memory_->Allocate({MemoryUser::Kind::kWeights, "m"}, kKeptModel);
  ASSERT_TRUE(to.ok());
  const auto stream = device_->MakeStream();
  EXPECT_TRUE(stream->CopyWithin(*to, held.weights, nullptr)->Wait(std::chrono::seconds(30)).ok());
  (void)table.Release("m", held);
  EXPECT_EQ(At("m"), before) << "until it is told that it has moved";
  ASSERT_TRUE(table.Move(*table.IdleAt(held.weights.address), *to));
  EXPECT_NE(At("m"), before);
  std::ranges::fill(std::span(before, 1024), std::byte{9});  // another model lies there now
  NextWorker();
  Run(7, "m", 1, 0, 0, &copy);
  EXPECT_THAT(Output(7), ElementsAre(0, 1, 2, 3));
}

TEST_F(KeptWeightsTest, RangesThatOverlapOrLeaveTheDeviceAreDroppedWithASentence) {
  EndWorker();
  {
    const auto record = Record();
    std::vector<std::string> dropped;
    (void)record->Read(dropped);
    record->Set({"whole", 0, KiB(64)});
    record->Set({"over-it", KiB(32).count(), KiB(64)});
    record->Set({"behind-the-end", kDevice.count(), Bytes(1)});
    record->Set({"beyond-the-end", kDevice.count() - 256, KiB(1)});
    record->Set({"wraps", ~std::uint64_t{0} - 255, KiB(1)});
    record->Set({"endless", 0, Bytes(~std::uint64_t{0})});
    record->Set({"between-units", KiB(512).count() + 1, Bytes(1)});
  }
  NextWorker();
  const auto& report = residency_->kept().report();
  EXPECT_EQ(report.models(), 1u);
  EXPECT_EQ(report.dropped(), 6u);
  EXPECT_THAT(report.reasons(0), HasSubstr("overlap another model, or leave the device's memory"));
  EXPECT_LE(report.reasons_size(), 8);
  EXPECT_EQ(residency_->kept().size(), 1u);
  EXPECT_EQ(OnRecord().size(), 1u);
}

TEST_F(KeptWeightsTest, APolicyThatKeepsNoPlacesSaysSo) {
  Bring("m");
  MemoryOptions cache;
  cache.policy = "block-cache";
  NextWorker(cache);
  EXPECT_EQ(residency_->kept().size(), 0u);
  EXPECT_EQ(residency_->kept().report().dropped(), 1u);
  EXPECT_THAT(residency_->kept().report().reasons(0), HasSubstr("memory policy block-cache"));
  EXPECT_EQ(memory_->memory().free, memory_->memory().total);
  Bring("n");
  EXPECT_THAT(OnRecord(), IsEmpty()) << "it writes no record either";
}

TEST_F(KeptWeightsTest, AsManyAreKeptAsTheDaemonCanBeTold) {
  auto record = Record();
  std::vector<std::string> none;
  EXPECT_THAT(record->Read(none), IsEmpty());
  constexpr std::size_t kFound = KeptWeights::kMost + 100;
  for (std::size_t i = 0; i < kFound; ++i)
    record->Set({absl::StrCat(std::string(WeightRecord::kLongestDigest - 8, 'm'), i), 256 * i, Bytes(256)});
  record.reset();
  NextWorker();
  EXPECT_EQ(residency_->kept().size(), KeptWeights::kMost);
  EXPECT_EQ(residency_->kept().report().dropped(), 100u);
  EXPECT_THAT(residency_->kept().report().reasons(0), HasSubstr("384 models are kept at most"));
  NextWorker();
  EXPECT_EQ(residency_->kept().report().dropped(), 0u) << "what was dropped is not on record any more";
}

TEST_F(KeptWeightsTest, EachThatIsAskedForIsComparedOnce) {
  std::vector<proto::HostCopy> copies;
  for (const char* digest : {"a", "b", "c"}) copies.push_back(Bring(digest));
  NextWorker();
  gate_->Set(true);
  const Time now = transport::SteadyNow();
  // All are asked for before the first comparison has ended, or after.
  for (std::size_t i = 0; i < copies.size(); ++i) {
    deadline_ = now + std::chrono::seconds(10 - i);
    Run(10 + i, copies[i].digest(), 1, 0, 0, &copies[i]);
  }
  gate_->Set(false);
  for (std::size_t i = 0; i < copies.size(); ++i) EXPECT_EQ(Code(10 + i), 0);
  EXPECT_EQ(residency_->swapped().bytes, Bytes(0));
}

}  // namespace
}  // namespace troupe::gpu::test
