// What a worker reports of a pinned model whose weights lie in blocks.
#include "gpu/worker/pin_table.hpp"

#include <string>

#include "gmock/gmock.h"
#include "tests/unit/gpu_worker/runner_fixture.hpp"

namespace troupe::gpu::test {
namespace {

using testing::HasSubstr;

constexpr std::size_t kSmall = 512 << 10;

MemoryOptions Mapped() {
  MemoryOptions options;
  options.addresses = WeightAddresses::kMapped;
  return options;
}

class PinTableTest : public RunnerTest {
 protected:
  PinTableTest()
      : RunnerTest(MakePlain, {.group = KiB(256), .block = KiB(64)}, Mapped()),
        pins_(*device_, *residency_, *tensors_, limits_) {
    // Eight models fill the device; three that are not side by side are evicted, and a larger one takes their
    // blocks.
    const auto name = [](int i) { return "m" + std::to_string(i); };
    for (int i = 0; i < 8; ++i) Bring(PlaceSmall(*host_, name(i), 1, kSmall));
    for (int i = 0; i < 6; i += 2) residency_->Evict(name(i), ReplyFor(next_++));
    Bring(PlaceSmall(*host_, "large", 1, 3 * kSmall));
  }
  void Bring(const proto::HostCopy& copy) {
    SwapIn(next_, copy);
    EXPECT_EQ(Code(next_++), 0);
  }
  proto::WorkerOutcome Pin() {
    proto::PinOrder order;
    order.set_digest("large");
    pins_.Pin(channel_, order, ReplyFor(next_));
    return Await(next_++);
  }
  int Evict() {
    residency_->Evict("large", ReplyFor(next_));
    return Code(next_++);
  }

  PinTable pins_;
  std::uint64_t next_ = 1;
};

TEST_F(PinTableTest, EachRangeOfItIsTold) {
  const proto::WorkerOutcome outcome = Pin();
  ASSERT_EQ(outcome.code(), 0) << outcome.message();
  std::uint64_t told = 0;
  for (const auto& range : outcome.pin().memory().ranges()) told += range.length();
  EXPECT_EQ(outcome.pin().memory().ranges_size(), 3);
  EXPECT_EQ(told, 3 * kSmall);
  EXPECT_EQ(Evict(), CodeOf(absl::StatusCode::kFailedPrecondition));
  pins_.Unpin(outcome.pin().pin());
  EXPECT_EQ(Evict(), 0);
}

TEST_F(PinTableTest, InMoreRangesThanADestinationTakesItIsNotPinned) {
  limits_.pinned_ranges = 2;
  const proto::WorkerOutcome outcome = Pin();
  EXPECT_EQ(outcome.code(), CodeOf(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(outcome.message(), HasSubstr("lies in 3 ranges, at most 2 are copied: take it from the host"));
  EXPECT_EQ(pins_.size(), 0u);
  EXPECT_EQ(Evict(), 0);
}

}  // namespace
}  // namespace troupe::gpu::test
