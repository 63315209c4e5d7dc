#include "gpu/swap/transfer_queue.hpp"

#include <array>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace troupe::gpu {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr Time kBegin{std::chrono::seconds(1)};
constexpr Time kEnd{std::chrono::seconds(2)};

class TransferQueueTest : public testing::Test {
 protected:
  TransferRequest Of(std::initializer_list<std::uint64_t> sizes, std::uint64_t order = 1) {
    TransferRequest request;
    request.order = order;
    std::byte* at = device_.data();
    for (const std::uint64_t size : sizes) {
      request.pieces.push_back({{at, Bytes(size)}, host_.data() + (at - device_.data()), Bytes()});
      at += size;
    }
    request.landed = [this](std::size_t piece, Time) { landed_.push_back(piece); };
    request.done = [this](const Completion& completion) { done_.push_back(completion); };
    return request;
  }
  void Pass(const TransferQueue::Block& block, const absl::Status& status = absl::OkStatus()) {
    const auto passing = queue_.Passed(block, {status, kBegin, kEnd});
    if (passing.landed) passing.landed(passing.piece, kEnd);
    if (passing.done) passing.done(passing.whole);
  }
  static std::vector<std::uint64_t> SizesOf(const std::vector<TransferQueue::Block>& blocks) {
    std::vector<std::uint64_t> sizes;
    for (const auto& block : blocks) sizes.push_back(block.device.size.count());
    return sizes;
  }

  std::array<std::byte, 64> device_{};
  std::array<std::byte, 64> host_{};
  TransferQueue queue_{Bytes(4), 4};
  std::vector<std::size_t> landed_;
  std::vector<Completion> done_;
};

class NoSignals final : public Signals {
 public:
  [[nodiscard]] std::size_t count() const override { return 4; }
  void Release() override {}
};

TEST_F(TransferQueueTest, TheLastBlockOfAPieceRaisesItsSignal) {
  TransferRequest request = Of({6, 3});
  const auto signals = std::make_shared<NoSignals>();
  request.signals = signals;
  request.first_signal = 2;
  queue_.Add(std::move(request), 0);
  queue_.Add(Of({2}, 2), 1);
  const auto blocks = queue_.Choose();
  EXPECT_THAT(SizesOf(blocks), ElementsAre(4, 2, 3, 2));
  EXPECT_EQ(blocks[0].raises.of, nullptr);
  EXPECT_EQ(blocks[1].raises.of, signals);
  EXPECT_EQ(blocks[1].raises.index, 2u);
  EXPECT_EQ(blocks[2].raises.index, 3u);
  EXPECT_EQ(blocks[3].raises.of, nullptr) << "another transfer, without signals";
}

TEST_F(TransferQueueTest, BlocksNeverSpanTwoPieces) {
  queue_.Add(Of({6, 3}), 0);
  const auto blocks = queue_.Choose();
  EXPECT_THAT(SizesOf(blocks), ElementsAre(4, 2, 3));
  EXPECT_EQ(blocks[1].device.address, device_.data() + 4);
  EXPECT_EQ(blocks[1].host, host_.data() + 4);
  EXPECT_EQ(blocks[2].device.address, device_.data() + 6);
  Pass(blocks[0]);
  EXPECT_THAT(landed_, IsEmpty());
  Pass(blocks[1]);
  EXPECT_THAT(landed_, ElementsAre(0));
  EXPECT_THAT(done_, IsEmpty());
  Pass(blocks[2]);
  EXPECT_THAT(landed_, ElementsAre(0, 1));
  ASSERT_EQ(done_.size(), 1u);
  EXPECT_TRUE(done_[0].status.ok());
  EXPECT_FALSE(queue_.state().busy);
  EXPECT_EQ(queue_.state().progress, 3u);
}

TEST_F(TransferQueueTest, MoreIsChosenWhenHalfOfABatchHasPassed) {
  queue_.Add(Of({32}), 0);
  auto blocks = queue_.Choose();
  ASSERT_EQ(blocks.size(), 4u);
  EXPECT_THAT(queue_.Choose(), IsEmpty());
  Pass(blocks[0]);
  EXPECT_THAT(queue_.Choose(), IsEmpty());
  Pass(blocks[1]);
  EXPECT_EQ(queue_.Choose().size(), 2u);
}

TEST_F(TransferQueueTest, TheMostUrgentGoesFirstAndMayBecomeMoreUrgent) {
  queue_.Add(Of({4}, 1), 30);
  const auto second = queue_.Add(Of({4}, 2), 20);
  const auto third = queue_.Add(Of({4}, 3), 40);
  EXPECT_EQ(queue_.demand().urgency, 20);
  EXPECT_EQ(queue_.demand().transfers, 3u);
  EXPECT_TRUE(queue_.Raise(third, 10));
  EXPECT_TRUE(queue_.Raise(second, 90)) << "less urgent: it stays what it is";
  EXPECT_FALSE(queue_.Raise(99, 0));
  std::vector<std::uint64_t> order;
  for (const auto& block : queue_.Choose()) order.push_back(block.transfer);
  EXPECT_THAT(order, ElementsAre(third, second, 1));
  EXPECT_EQ(queue_.state().order, 3u);
}

TEST_F(TransferQueueTest, AFailedBlockFailsItsTransferWhenTheOthersAreBack) {
  queue_.Add(Of({32}, 1), 0);
  const auto blocks = queue_.Choose();
  Pass(blocks[0], absl::DataLossError("broken"));
  EXPECT_THAT(done_, IsEmpty());
  Pass(blocks[1]);
  Pass(blocks[2]);
  EXPECT_THAT(queue_.Choose(), IsEmpty()) << "nothing more of it is sent";
  Pass(blocks[3]);
  ASSERT_EQ(done_.size(), 1u);
  EXPECT_TRUE(absl::IsDataLoss(done_[0].status));
  EXPECT_THAT(landed_, IsEmpty());
  EXPECT_EQ(queue_.demand().transfers, 0u);
  EXPECT_FALSE(queue_.demand().urgency.has_value());
}

}  // namespace
}  // namespace troupe::gpu
