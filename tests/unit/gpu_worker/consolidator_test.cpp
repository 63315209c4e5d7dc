// Weights are moved while nothing runs, arrive whole, and delay no run and no load that needs them.
#include "gpu/worker/consolidator.hpp"

#include <thread>
#include <vector>

#include "gpu/device/virtual_device.hpp"
#include "gtest/gtest.h"

namespace troupe::gpu {
namespace {

constexpr Bytes kModel = KiB(500);

class ConsolidatorTest : public testing::Test {
 protected:
  ConsolidatorTest() {
    VirtualDeviceOptions options;
    options.timed = *ComputeProfile::Parse("default 1ms");
    device_ =
        *MakeVirtualDevice(std::move(options), *transport::MemoryFile::Create("test", MiB(16)), nullptr);
    queue_ = *TaskQueue::Create();
    memory_ = std::make_unique<DeviceMemory>(*device_, MemoryOptions());
    consolidator_ = std::make_unique<Consolidator>(*memory_, table_, *queue_);
    stream_ = device_->MakeStream();
  }

  static std::vector<std::byte> WeightsOf(int model) {
    return std::vector<std::byte>(kModel.count(), static_cast<std::byte>(model));
  }
  static std::string DigestOf(int model) { return "model-" + std::to_string(model); }

  // The device is filled, then every second model is evicted.
  void FillWithHoles() {
    for (;; ++models_) {
      const auto range = memory_->Allocate({MemoryUser::Kind::kWeights, DigestOf(models_)}, kModel);
      if (!range.ok()) break;
      EXPECT_TRUE(stream_->CopyIn(*range, WeightsOf(models_), nullptr)->Wait(std::chrono::seconds(30)).ok());
      table_.BeginLoading(DigestOf(models_), *range);
      table_.Loaded(DigestOf(models_));
    }
    for (int model = 0; model < models_; model += 2) memory_->Free(*table_.Evict(DigestOf(model)));
    EXPECT_GT(memory_->fragmentation(), 0.8);
  }
  void ExpectWhole() {
    for (const auto& [digest, size] : table_.Resident()) {
      const auto hold = table_.Acquire(digest);
      std::vector<std::byte> bytes(size.count());
      EXPECT_TRUE(stream_->CopyOut(bytes, hold.weights, nullptr)->Wait(std::chrono::seconds(30)).ok());
      EXPECT_TRUE(bytes == WeightsOf(std::stoi(digest.substr(6)))) << digest;
      (void)table_.Release(digest, hold);
    }
  }
  void EvictAll() {
    for (const auto& [digest, size] : table_.Resident()) memory_->Free(*table_.Evict(digest));
    EXPECT_EQ(memory_->memory().free, memory_->memory().total);
  }
  // A run comes for a model whose weights are being moved.
  void Pump() {
    while (consolidator_->moving() > 0) {
      if (!queue_->Run()) std::this_thread::yield();
    }
  }
  void Rest() {
    consolidator_->Tick(now_, true);
    now_ += Consolidator::kRest;
  }

  Time now_{};
  std::unique_ptr<Device> device_;
  std::unique_ptr<TaskQueue> queue_;
  std::unique_ptr<DeviceMemory> memory_;
  ModelTable table_;
  std::unique_ptr<Consolidator> consolidator_;
  std::unique_ptr<Stream> stream_;
  int models_ = 0;
};

TEST_F(ConsolidatorTest, FreeMemoryHangsTogetherAndWeightsArriveWhole) {
  FillWithHoles();
  Rest();
  for (int round = 0; round < 20; ++round) {
    consolidator_->Tick(now_, true);
    Pump();
  }
  EXPECT_GT(consolidator_->moved(), 3u);
  EXPECT_LT(memory_->fragmentation(), Consolidator::kFragmented);
  ExpectWhole();
  EvictAll();
}

TEST_F(ConsolidatorTest, NothingMovesWhileTheDeviceIsUsed) {
  FillWithHoles();
  Rest();
  consolidator_->Tick(now_, false);
  EXPECT_EQ(consolidator_->moving(), 0u);
  consolidator_->Tick(now_, true);
  EXPECT_EQ(consolidator_->moving(), 0u) << "the worker has to rest first";
  std::vector<std::pair<std::string, ModelTable::Hold>> holds;
  for (const auto& [digest, size] : table_.Resident()) holds.emplace_back(digest, table_.Acquire(digest));
  Rest();
  consolidator_->Tick(now_, true);
  EXPECT_EQ(consolidator_->moving(), 0u) << "all models are in use";
  for (const auto& [digest, hold] : holds) (void)table_.Release(digest, hold);
  EvictAll();
}

TEST_F(ConsolidatorTest, WhatMovesHasOnePlaceAgainWhenItIsWaitedFor) {
  FillWithHoles();
  Rest();
  const Bytes free = memory_->memory().free;
  consolidator_->Tick(now_, true);
  ASSERT_GT(consolidator_->moving(), 0u);
  EXPECT_LT(memory_->memory().free, free) << "what is moving has two places";
  EXPECT_TRUE(consolidator_->Finish());
  EXPECT_EQ(consolidator_->moving(), 0u);
  EXPECT_EQ(memory_->memory().free, free);
  EXPECT_FALSE(consolidator_->Finish()) << "nothing is moving";
  while (queue_->Run()) {  // the copies' completions
  }
  EXPECT_EQ(memory_->memory().free, free);
  ExpectWhole();
  EvictAll();
}

TEST_F(ConsolidatorTest, AModelThatIsUsedOrEvictedMeanwhileIsNotHeldUp) {
  FillWithHoles();
  Rest();
  consolidator_->Tick(now_, true);
  ASSERT_GT(consolidator_->moving(), 1u);
  std::vector<std::pair<std::string, ModelTable::Hold>> holds;
  bool evict = false;
  for (const auto& [digest, size] : table_.Resident()) {
    if (evict) {
      memory_->Free(*table_.Evict(digest));
    } else {
      holds.emplace_back(digest, table_.Acquire(digest));
    }
    evict = !evict;
  }
  Pump();
  EXPECT_EQ(consolidator_->moved(), 0u);
  for (const auto& [digest, hold] : holds) {
    EXPECT_EQ(table_.Acquire(digest).weights.address, hold.weights.address);
    (void)table_.Release(digest, hold);
    (void)table_.Release(digest, hold);
  }
  ExpectWhole();
  EvictAll();
}

}  // namespace
}  // namespace troupe::gpu
