#include "gpu/swap/link_port.hpp"

#include <atomic>
#include <future>

#include "gmock/gmock.h"
#include "gpu/swap/device_links.hpp"
#include "gtest/gtest.h"
#include "tests/unit/gpu_swap/held_device.hpp"

namespace troupe::gpu::test {
namespace {

using testing::Each;
using testing::ElementsAre;

constexpr Bytes kBlock = KiB(4);

// One transfer that comes in pieces of the given sizes, filled with `fill`.
struct Sending {
  Sending(Device& device, std::vector<std::uint64_t> sizes, std::byte fill) : device(device) {
    for (const std::uint64_t size : sizes) {
      host.emplace_back(size, fill);
      ranges.push_back(*device.Allocate(Bytes(size)));
    }
  }
  ~Sending() {
    for (const DeviceRange& range : ranges) device.Free(range);
  }
  LinkPort::Id Put(LinkPort& port, std::uint64_t order = 1, std::optional<Time> deadline = {}) {
    TransferRequest request;
    request.order = order;
    request.deadline = deadline;
    for (std::size_t i = 0; i < ranges.size(); ++i) request.pieces.push_back({ranges[i], host[i].data()});
    request.landed = [this](std::size_t piece, Time) { landed.push_back(piece); };
    request.done = [this](const Completion& completion) { done.push_back(completion.status); };
    return port.Put(std::move(request));
  }
  // Whether the next block on the link belongs to one of these transfers.
  [[nodiscard]] bool Owns(const DeviceRange& block) const {
    return std::any_of(ranges.begin(), ranges.end(), [&](const DeviceRange& range) {
      return block.address >= range.address && block.address < range.address + range.size.count();
    });
  }
  Device& device;
  std::vector<std::vector<std::byte>> host;
  std::vector<DeviceRange> ranges;
  std::vector<std::size_t> landed;
  std::vector<absl::Status> done;
};

class LinkPortTest : public testing::Test {
 protected:
  LinkPort& Open(LinkSharing sharing, std::uint32_t batch = 6) {
    port_ = std::make_unique<LinkPort>(*device_, LinkPort::Direction::kIn,
                                       LinkPort::Options{sharing, kBlock, batch});
    return *port_;
  }
  // Passes all blocks and returns the transfer of each, 'a' for the first of `all`.
  std::string PassAll(std::vector<Sending*> all) {
    std::string order;
    while (device_->held() > 0) {
      const DeviceRange block = device_->front();
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (all[i]->Owns(block)) order += static_cast<char>('a' + i);
      }
      device_->Pass();
    }
    return order;
  }
  static Time In(int seconds) { return transport::SteadyNow() + std::chrono::seconds(seconds); }

  std::unique_ptr<HeldDevice> device_ = MakeHeldDevice(MiB(4));
  std::unique_ptr<LinkPort> port_;
};

// Inputs have a stream beside the weights': their blocks are with the device while a batch of weights is.
TEST_F(LinkPortTest, LargeInputsDoNotWaitBehindABatchOfWeights) {
  DeviceLinks links(*device_, {.group = KiB(64), .block = kBlock});
  Sending weights(*device_, {20 * kBlock.count()}, std::byte{1});
  Sending input(*device_, {2 * kBlock.count()}, std::byte{2});
  weights.Put(links.in(), 1);
  EXPECT_EQ(device_->held(), links.options().batch);
  input.Put(links.inputs(), 2);
  EXPECT_EQ(device_->held(), links.options().batch + 2u);
  EXPECT_TRUE(links.from_host().busy);
  const std::uint64_t before = links.from_host().progress;
  EXPECT_EQ(PassAll({&weights, &input}).find("bb"), links.options().batch);
  EXPECT_EQ(links.from_host().progress - before, 22u) << "the watchdog sees the blocks of both";
  EXPECT_FALSE(links.from_host().busy);
  EXPECT_THAT(input.done, ElementsAre(absl::OkStatus()));
  EXPECT_THAT(weights.done, ElementsAre(absl::OkStatus()));
}

TEST_F(LinkPortTest, PiecesLandInOrderAndAreWhatTheyWere) {
  LinkPort& port = Open(LinkSharing::kDeadline);
  Sending sending(*device_, {10'000, 1, 0, 4096, 70'000}, std::byte{7});
  sending.Put(port, 42);
  EXPECT_TRUE(port.state().busy);
  EXPECT_EQ(port.state().order, 42u);
  PassAll({&sending});
  EXPECT_THAT(sending.landed, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(sending.done, ElementsAre(absl::OkStatus()));
  EXPECT_FALSE(port.state().busy);
  EXPECT_EQ(port.state().progress, 3u + 1 + 1 + 1 + 18);
  for (std::size_t i = 0; i < sending.ranges.size(); ++i) {
    EXPECT_THAT(std::span(sending.ranges[i].address, sending.host[i].size()), Each(std::byte{7}));
  }
}

TEST_F(LinkPortTest, NeverMoreThanABatchIsWithTheDevice) {
  LinkPort& port = Open(LinkSharing::kShared);
  Sending sending(*device_, {100 * kBlock.count()}, std::byte{1});
  sending.Put(port);
  while (device_->held() > 0) {
    EXPECT_LE(device_->held(), 6u);
    device_->Pass();
    if (port.state().progress <= 94) {
      EXPECT_GE(device_->held(), 3u) << "the link never runs dry";
    }
  }
  EXPECT_EQ(port.state().progress, 100u);
}

TEST_F(LinkPortTest, ExclusiveServesOneAfterTheOther) {
  LinkPort& port = Open(LinkSharing::kExclusive);
  Sending first(*device_, {12 * kBlock.count()}, std::byte{1});
  Sending second(*device_, {4 * kBlock.count()}, std::byte{2});
  first.Put(port, 1, In(100));
  second.Put(port, 2, In(1));
  EXPECT_EQ(PassAll({&first, &second}), "aaaaaaaaaaaabbbb");
}

TEST_F(LinkPortTest, SharedGivesTurnsFromTheNextBatchOn) {
  LinkPort& port = Open(LinkSharing::kShared);
  Sending first(*device_, {12 * kBlock.count()}, std::byte{1});
  Sending second(*device_, {4 * kBlock.count()}, std::byte{2});
  first.Put(port, 1, In(100));
  second.Put(port, 2, In(1));
  EXPECT_EQ(PassAll({&first, &second}),
            "aaaaaa"
            "abababab"
            "aa");
}

TEST_F(LinkPortTest, DeadlineServesTheMostUrgentFromTheNextBatchOn) {
  LinkPort& port = Open(LinkSharing::kDeadline);
  Sending first(*device_, {12 * kBlock.count()}, std::byte{1});
  Sending second(*device_, {4 * kBlock.count()}, std::byte{2});
  Sending third(*device_, {2 * kBlock.count()}, std::byte{2});
  first.Put(port, 1, In(100));
  second.Put(port, 2, In(50));
  third.Put(port, 3, In(1));
  EXPECT_EQ(PassAll({&first, &second, &third}),
            "aaaaaa"
            "ccbbbb"
            "aaaaaa");
}

TEST_F(LinkPortTest, AWaitingTransferCanBecomeUrgent) {
  LinkPort& port = Open(LinkSharing::kDeadline);
  Sending first(*device_, {12 * kBlock.count()}, std::byte{1});
  Sending second(*device_, {4 * kBlock.count()}, std::byte{2});
  first.Put(port, 1, In(10));
  const LinkPort::Id id = second.Put(port, 2, In(50));
  port.Raise(id, In(1));
  port.Raise(999, In(1));
  EXPECT_EQ(PassAll({&first, &second}),
            "aaaaaa"
            "bbbb"
            "aaaaaa");
}

TEST_F(LinkPortTest, AFailedBlockFailsItsTransferOnceNothingOfItIsUnderWay) {
  LinkPort& port = Open(LinkSharing::kShared);
  Sending first(*device_, std::vector<std::uint64_t>(12, kBlock.count()), std::byte{1});
  Sending second(*device_, {4 * kBlock.count()}, std::byte{2});
  first.Put(port, 1);
  second.Put(port, 2);
  device_->Pass();
  device_->Fail(absl::DataLossError("a bad block"));
  EXPECT_THAT(first.done, testing::IsEmpty()) << "the device still writes into the transfer's memory";
  PassAll({&first, &second});
  EXPECT_THAT(first.landed, ElementsAre(0));
  ASSERT_EQ(first.done.size(), 1u);
  EXPECT_EQ(first.done[0].code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(second.landed, ElementsAre(0));
  EXPECT_THAT(second.done, ElementsAre(absl::OkStatus()));
  EXPECT_LT(port.state().progress, 16u) << "blocks that cannot be used any more are not sent";
}

TEST_F(LinkPortTest, ACallbackMayPutMore) {
  LinkPort& port = Open(LinkSharing::kShared);
  device_->Hold(false);
  Sending sending(*device_, {1000, 1000}, std::byte{3});
  std::atomic<int> rounds = 0;
  std::function<void()> again = [&] {
    TransferRequest request;
    request.pieces = {{sending.ranges[0], sending.host[0].data()}};
    request.done = [&](const Completion&) {
      if (++rounds < 100) again();
    };
    port.Put(std::move(request));
  };
  again();
  port.Close();  // waits for the copies that the device has
  EXPECT_GE(rounds, 1);
}

TEST_F(LinkPortTest, NothingIsATransferToo) {
  LinkPort& port = Open(LinkSharing::kShared);
  bool done = false;
  TransferRequest request;
  request.done = [&](const Completion& completion) { done = completion.status.ok(); };
  port.Put(std::move(request));
  EXPECT_TRUE(done);
  EXPECT_FALSE(port.state().busy);
}

TEST_F(LinkPortTest, ItsDemandIsAnnounced) {
  LinkPort& port = Open(LinkSharing::kDeadline);
  std::vector<LinkPort::Demand> demands;
  port.Announce([&](const LinkPort::Demand& demand) { demands.push_back(demand); });
  Sending first(*device_, {kBlock.count()}, std::byte{1});
  Sending second(*device_, {kBlock.count()}, std::byte{2});
  const Time soon = In(1);
  first.Put(port, 1, In(100));
  second.Put(port, 2, soon);
  EXPECT_EQ(demands.front().transfers, 0u);
  EXPECT_EQ(demands.back().transfers, 2u);
  EXPECT_EQ(demands.back().urgency, soon.time_since_epoch().count());
  PassAll({&first, &second});
  EXPECT_EQ(demands.back().transfers, 0u);
  EXPECT_FALSE(demands.back().urgency.has_value());
}

TEST_F(LinkPortTest, CopiesOutGoTheSameWay) {
  LinkPort port(*device_, LinkPort::Direction::kOut, {LinkSharing::kShared, kBlock, 6});
  device_->Hold(false);
  const DeviceRange range = *device_->Allocate(Bytes(100'000));
  std::memset(range.address, 9, 100'000);
  std::vector<std::byte> back(100'000);
  TransferRequest request;
  request.pieces = {{range, back.data()}};
  auto done = std::make_shared<std::promise<absl::Status>>();
  request.done = [done](const Completion& completion) { done->set_value(completion.status); };
  port.Put(std::move(request));
  EXPECT_TRUE(done->get_future().get().ok());
  EXPECT_THAT(back, Each(std::byte{9}));
  device_->Free(range);
}

}  // namespace
}  // namespace troupe::gpu::test
