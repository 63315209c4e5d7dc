// Broadcasts over shared memory, between threads of one process and between processes.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "tests/temporary_directory.hpp"
#include "tests/unit/transport/broadcast_contract.hpp"
#include "transport/local_broadcast.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::transport::test {
namespace {

class LocalMembers final : public BroadcastMembers {
 public:
  LocalMembers(std::uint32_t count, BytesPerSecond link) : memory_(count) {
    std::vector<LinkConfig> configs;
    for (std::uint32_t from = 0; from < count; ++from)
      for (std::uint32_t to = 0; to < count; ++to)
        if (from != to) configs.push_back({absl::StrCat(from, ":", to), link});
    auto links = std::make_shared<LinkBuckets>(*LinkBuckets::Create(configs));
    for (std::uint32_t rank = 0; rank < count; ++rank) {
      const auto way = [links, rank, link](std::uint32_t from) -> absl::StatusOr<LocalBroadcaster::Way> {
        if (link.value == 0) return LocalBroadcaster::Way();
        const auto found = links->Find(absl::StrCat(from, ":", rank));
        if (!found.ok()) return found.status();
        return LocalBroadcaster::Way{links, links->PathOf(*found)};
      };
      broadcasters_.push_back(
          std::make_unique<LocalBroadcaster>(way, absl::StrCat(directory_.path(), "/window", rank)));
    }
  }
  Broadcaster& At(std::uint32_t rank) override { return *broadcasters_[rank]; }
  std::span<std::byte> MemoryOf(std::uint32_t rank, std::size_t bytes) override {
    memory_[rank].resize(bytes);
    return memory_[rank];
  }
  void Write(std::span<std::byte> to, const std::string& bytes) override {
    std::memcpy(to.data(), bytes.data(), bytes.size());
  }
  std::string Read(std::span<const std::byte> from) override {
    return {reinterpret_cast<const char*>(from.data()), from.size()};
  }

 private:
  const troupe::test::TemporaryDirectory directory_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::unique_ptr<LocalBroadcaster>> broadcasters_;
};

// A process that joins as rank 1, takes a piece, and is killed while it waits for the next.
pid_t StartReceiver(const BroadcastSlot& slot) {
  const pid_t child = fork();
  if (child != 0) return child;
  LocalBroadcaster broadcaster;
  std::vector<std::byte> memory(1 << 20);
  auto end = broadcaster.Join(slot, std::chrono::seconds(60));
  if (end.ok()) (void)(*end)->Pass(memory);
  pause();
  _exit(1);
}

TEST(LocalBroadcast, AMemberThatIsKilledIsNoticed) {
  LocalBroadcaster broadcaster;
  BroadcastSlot slot{*broadcaster.NewId(), 1, {4, 7}};
  const pid_t child = StartReceiver(slot);
  ASSERT_GT(child, 0);
  slot.rank = 0;
  auto end = broadcaster.Join(slot, std::chrono::seconds(60));
  ASSERT_TRUE(end.ok()) << end.status();
  std::vector<std::byte> memory(1 << 20);
  ASSERT_TRUE((*end)->Pass(memory).ok());
  ASSERT_EQ(kill(child, SIGKILL), 0);
  // Until it is waited for the process is a zombie, which counts as dead.
  absl::Status status;
  for (int piece = 0; piece < 100 && status.ok(); ++piece) status = (*end)->Pass(memory);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("GPU 7"));
  int how = 0;
  EXPECT_EQ(waitpid(child, &how, 0), child);
}

TEST(LocalBroadcast, WithoutALinkFromTheSenderNoReceiverJoins) {
  LocalMembers members(3, {1e9});
  BroadcastSlot slot{*members.At(1).NewId(), 2, {7, 0, 2}};  // GPU 7 has no links
  EXPECT_TRUE(absl::IsNotFound(members.At(2).Join(slot, std::chrono::seconds(60)).status()));
}

TEST(LocalBroadcast, BytesTakeTheirLink) {
  auto links = std::make_shared<LinkBuckets>(*LinkBuckets::Create({{"way", {1e9}}}));
  LocalBroadcaster sender;
  LocalBroadcaster receiver([&](std::uint32_t) { return LocalBroadcaster::Way{links, {0}}; });
  BroadcastSlot slot{*sender.NewId(), 0, {0, 1}};
  std::thread sending([&, slot] {
    auto end = sender.Join(slot, std::chrono::seconds(60));
    std::vector<std::byte> memory(3 << 20);
    EXPECT_TRUE((*end)->Pass(memory).ok());
    EXPECT_TRUE((*end)->Finish().ok());
  });
  slot.rank = 1;
  auto end = receiver.Join(slot, std::chrono::seconds(60));
  ASSERT_TRUE(end.ok());
  std::vector<std::byte> memory(3 << 20);
  const Time begin = SteadyNow();
  EXPECT_TRUE((*end)->Pass(memory).ok());
  // The broadcast is at most as fast as the link, however fast the machine is.
  EXPECT_GE(SteadyNow() - begin, TransferTime(Bytes(memory.size()), {1e9}) - std::chrono::milliseconds(1));
  EXPECT_TRUE((*end)->Finish().ok());
  sending.join();
  EXPECT_EQ(links->passed(0), Bytes(memory.size()));
}

TEST(LocalBroadcast, ALinkThatLetsNothingPassIsGivenUp) {
  auto links = std::make_shared<LinkBuckets>(*LinkBuckets::Create({{"way", {1e9}}}));
  links->Stall(0, SteadyNow() + std::chrono::minutes(50));
  LocalBroadcaster sender;
  LocalBroadcaster receiver([&](std::uint32_t) { return LocalBroadcaster::Way{links, {0}}; });
  BroadcastSlot slot{*sender.NewId(), 0, {0, 1}};
  std::thread sending([&, slot] {
    auto end = sender.Join(slot, std::chrono::seconds(60));
    std::vector<std::byte> memory(1 << 20);
    absl::Status status;
    for (int piece = 0; piece < 100 && status.ok(); ++piece) status = (*end)->Pass(memory);
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  });
  slot.rank = 1;
  auto end = receiver.Join(slot, std::chrono::milliseconds(500));
  ASSERT_TRUE(end.ok());
  std::vector<std::byte> memory(1 << 20);
  EXPECT_TRUE(absl::IsDeadlineExceeded((*end)->Pass(memory)));
  sending.join();
}

TEST(LocalBroadcast, ARankIsTakenOnceAndOldIdentitiesGo) {
  LocalBroadcaster broadcaster;
  const BroadcastSlot slot{*broadcaster.NewId(), 0, {0, 1}};
  const auto short_time = std::chrono::milliseconds(20);
  EXPECT_TRUE(absl::IsDeadlineExceeded(broadcaster.Join(slot, short_time).status()));
  EXPECT_TRUE(absl::IsNotFound(broadcaster.Join(slot, short_time).status())) << "rank 1 has joined before";
  BroadcastSlot other{*broadcaster.NewId(), 1, {0, 1}};
  for (int i = 0; i < 16; ++i) ASSERT_TRUE(broadcaster.NewId().ok());
  EXPECT_TRUE(absl::IsNotFound(broadcaster.Join(other, short_time).status()))
      << "the sender has forgotten the broadcast";
}

}  // namespace

std::vector<BroadcasterKind> BroadcastersUnderTest() {
  const auto with = [](BytesPerSecond link) {
    return [link](std::uint32_t count) { return std::make_unique<LocalMembers>(count, link); };
  };
  return {{"Memory", BroadcastSlot::kMembers, with({0})}, {"Links", BroadcastSlot::kMembers, with({6e9})}};
}

}  // namespace troupe::transport::test
