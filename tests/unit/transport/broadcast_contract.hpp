// What every broadcaster has to do. A test program defines BroadcastersUnderTest and includes this file once.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transport/broadcast.hpp"

namespace troupe::transport::test {

// Members of one broadcast, each with memory that its broadcaster can send from and receive in.
class BroadcastMembers {
 public:
  virtual ~BroadcastMembers() = default;
  [[nodiscard]] virtual Broadcaster& At(std::uint32_t rank) = 0;
  // The memory of one member, which is `bytes` long; Write and Read set and return its content.
  [[nodiscard]] virtual std::span<std::byte> MemoryOf(std::uint32_t rank, std::size_t bytes) = 0;
  virtual void Write(std::span<std::byte> to, const std::string& bytes) = 0;
  [[nodiscard]] virtual std::string Read(std::span<const std::byte> from) = 0;
};
struct BroadcasterKind {
  const char* name;
  std::uint32_t most;  // the most members there can be; with fewer than two the contract is skipped
  std::function<std::unique_ptr<BroadcastMembers>(std::uint32_t count)> make;
};
std::vector<BroadcasterKind> BroadcastersUnderTest();

class BroadcastContract : public testing::TestWithParam<BroadcasterKind> {
 protected:
  static constexpr Duration kLong = std::chrono::seconds(60);
  static constexpr Duration kShort = std::chrono::milliseconds(50);
  using EndPtr = std::unique_ptr<BroadcastEnd>;

  void SetUp() override {
    if (GetParam().most < 2) GTEST_SKIP() << "two GPUs are needed, there are " << GetParam().most;
  }
  // Three members where there can be as many, so that one receiver sees what another one does.
  [[nodiscard]] static std::uint32_t Some() { return std::min<std::uint32_t>(3, GetParam().most); }
  [[nodiscard]] std::vector<std::uint32_t> All() const { return slot_.members; }
  void Begin(std::uint32_t count, Duration patience = kLong) {
    members_ = nullptr;  // the memory of the members before is free then
    members_ = GetParam().make(count);
    slot_.members.clear();
    for (std::uint32_t i = 0; i < count; ++i) slot_.members.push_back(i);
    const auto id = members_->At(0).NewId();
    ASSERT_TRUE(id.ok()) << id.status();
    ASSERT_LE(id->size(), Broadcaster::kIdBytes);
    slot_.id = *id;
    patience_ = patience;
  }
  [[nodiscard]] BroadcastSlot SlotAt(std::uint32_t rank) const {
    BroadcastSlot slot = slot_;
    slot.rank = rank;
    return slot;
  }
  // Runs `part` for each of these ranks on a thread of its own.
  void Each(const std::vector<std::uint32_t>& ranks, const std::function<void(std::uint32_t)>& part) {
    std::vector<std::thread> threads;
    for (const std::uint32_t rank : ranks) threads.emplace_back([&, rank] { part(rank); });
    for (std::thread& thread : threads) thread.join();
  }
  absl::StatusOr<EndPtr> Join(std::uint32_t rank) { return members_->At(rank).Join(SlotAt(rank), patience_); }
  // All members of a broadcast that has begun.
  std::vector<EndPtr> JoinAll(std::uint32_t count) {
    std::vector<EndPtr> ends(count);
    Each(All(), [&](std::uint32_t rank) {
      absl::StatusOr<EndPtr> end = Join(rank);
      EXPECT_TRUE(end.ok()) << end.status();
      if (end.ok()) ends[rank] = *std::move(end);
    });
    return ends;
  }
  // Bytes that differ from place to place.
  static std::string Pattern(std::size_t size, std::uint32_t seed) {
    std::string bytes(size, '\0');
    for (char& byte : bytes) byte = static_cast<char>((seed = seed * 1664525 + 1013904223) >> 24);
    return bytes;
  }

  std::unique_ptr<BroadcastMembers> members_;
  BroadcastSlot slot_;
  Duration patience_ = kLong;
};

TEST_P(BroadcastContract, EveryMemberGetsEveryPiece) {
  Begin(Some());
  const std::vector<std::size_t> pieces = {1, 4096, (5 << 20) + 7, 0, 700'001};
  std::size_t all = 0;
  for (const std::size_t piece : pieces) all += piece;
  const std::string sent = Pattern(all, 7);
  const std::vector<EndPtr> ends = JoinAll(Some());
  Each(All(), [&](std::uint32_t rank) {
    const std::span<std::byte> memory = members_->MemoryOf(rank, all);
    members_->Write(memory, rank == 0 ? sent : std::string(all, 'x'));
    std::size_t at = 0;
    for (const std::size_t piece : pieces) {
      ASSERT_TRUE(ends[rank]->Pass(memory.subspan(at, piece)).ok());
      at += piece;
      // Pieces that were passed have arrived, also when the next piece is not on its way yet.
      EXPECT_TRUE(members_->Read(memory.first(at)) == sent.substr(0, at)) << rank << " " << at;
    }
    EXPECT_TRUE(ends[rank]->Finish().ok());
  });
}

TEST_P(BroadcastContract, OneAfterTheOtherBetweenTheSameMembers) {
  for (std::uint32_t round = 0; round < 3; ++round) {
    if (round == 0) Begin(2);
    slot_.id = *members_->At(0).NewId();
    const std::string sent = Pattern(100'000, round);
    const std::vector<EndPtr> ends = JoinAll(2);
    Each({0, 1}, [&](std::uint32_t rank) {
      const std::span<std::byte> memory = members_->MemoryOf(rank, sent.size());
      if (rank == 0) members_->Write(memory, sent);
      EXPECT_TRUE(ends[rank]->Pass(memory).ok());
      EXPECT_TRUE(members_->Read(memory) == sent);
      EXPECT_TRUE(ends[rank]->Finish().ok());
    });
  }
}

// Whichever of them sends, and whether or not they have kept something from the round before.
TEST_P(BroadcastContract, EachMemberSendsInItsTurn) {
  Begin(Some());
  for (std::uint32_t round = 0; round < 2 * Some(); ++round) {
    const std::vector<std::uint32_t> gpus = All();
    const std::string kept = members_->At(gpus[0]).Kept(gpus);
    for (const std::uint32_t gpu : gpus)
      EXPECT_EQ(members_->At(gpu).Kept(gpus), kept) << "what all have finished, all have kept alike";
    EXPECT_LE(kept.size(), Broadcaster::kIdBytes);
    const auto id = kept.empty() ? members_->At(gpus[0]).NewId() : kept;
    ASSERT_TRUE(id.ok()) << id.status();
    const std::string sent = Pattern(300'000, round);
    Each(gpus, [&](std::uint32_t gpu) {
      BroadcastSlot slot{*id, 0, gpus};
      slot.rank = static_cast<std::uint32_t>(std::ranges::find(gpus, gpu) - gpus.begin());
      const auto end = members_->At(gpu).Join(slot, kLong);
      ASSERT_TRUE(end.ok()) << end.status();
      const std::span<std::byte> memory = members_->MemoryOf(gpu, sent.size());
      members_->Write(memory, slot.rank == 0 ? sent : std::string(sent.size(), 'x'));
      EXPECT_TRUE((*end)->Pass(memory).ok());
      EXPECT_TRUE(members_->Read(memory) == sent) << gpu << " in round " << round;
      EXPECT_TRUE((*end)->Finish().ok());
    });
    std::ranges::rotate(slot_.members, slot_.members.begin() + 1);
  }
}

TEST_P(BroadcastContract, AMemberThatNeverComesIsNotWaitedForForEver) {
  for (std::uint32_t missing = 0; missing < Some(); ++missing) {
    Begin(Some(), kShort);
    std::vector<std::uint32_t> there;
    for (std::uint32_t rank = 0; rank < Some(); ++rank)
      if (rank != missing) there.push_back(rank);
    Each(there, [&](std::uint32_t rank) {
      const auto end = Join(rank);
      EXPECT_TRUE(absl::IsDeadlineExceeded(end.status()) || absl::IsUnavailable(end.status()))
          << end.status();
    });
  }
}

TEST_P(BroadcastContract, AMemberThatLeavesBreaksItForAll) {
  for (const std::uint32_t leaving : {0u, Some() - 1}) {
    Begin(Some());
    std::vector<EndPtr> ends = JoinAll(Some());
    Each(All(),
         [&](std::uint32_t rank) { EXPECT_TRUE(ends[rank]->Pass(members_->MemoryOf(rank, 1 << 20)).ok()); });
    Each(All(), [&](std::uint32_t rank) {
      if (rank == leaving) return ends[rank].reset();
      const std::span<std::byte> memory = members_->MemoryOf(rank, 1 << 20);
      absl::Status status;
      // The sender may pass bytes that no receiver will take, but not for ever.
      for (int piece = 0; piece < 100 && status.ok(); ++piece) status = ends[rank]->Pass(memory);
      EXPECT_TRUE(absl::IsUnavailable(status)) << rank << ": " << status;
      EXPECT_FALSE(ends[rank]->Pass(memory).ok()) << "an end that is broken stays broken";
      EXPECT_FALSE(ends[rank]->Finish().ok());
    });
  }
}

TEST_P(BroadcastContract, AnEndThatIsAbortedStopsWaiting) {
  Begin(2);
  std::vector<EndPtr> ends = JoinAll(2);
  Each({0, 1}, [&](std::uint32_t rank) {
    if (rank == 0) return ends[1]->Abort();
    EXPECT_TRUE(absl::IsUnavailable(ends[1]->Pass(members_->MemoryOf(1, 4096))));
    ends[1].reset();
  });
  absl::Status status;
  for (int piece = 0; piece < 100 && status.ok(); ++piece)
    status = ends[0]->Pass(members_->MemoryOf(0, 1 << 20));
  EXPECT_FALSE(status.ok());
}

TEST_P(BroadcastContract, ASenderThatIsSilentIsGivenUp) {
  Begin(2);
  std::vector<EndPtr> ends(2);
  Each({0, 1}, [&](std::uint32_t rank) {
    auto end = members_->At(rank).Join(SlotAt(rank), rank == 0 ? kLong : Duration(std::chrono::seconds(1)));
    ASSERT_TRUE(end.ok()) << end.status();
    ends[rank] = *std::move(end);
  });
  const absl::Status waited = ends[1]->Pass(members_->MemoryOf(1, 4096));
  EXPECT_TRUE(absl::IsDeadlineExceeded(waited)) << waited;
}

TEST_P(BroadcastContract, NonsenseIsRefused) {
  Begin(2, kShort);
  const auto code = [&](const BroadcastSlot& slot) {
    return members_->At(1).Join(slot, kShort).status().code();
  };
  BroadcastSlot slot = SlotAt(1);
  slot.rank = 2;
  EXPECT_EQ(code(slot), absl::StatusCode::kInvalidArgument);
  slot = SlotAt(0);
  slot.members = {0};
  EXPECT_EQ(code(slot), absl::StatusCode::kInvalidArgument);
  slot.members = {1, 1};
  EXPECT_EQ(code(slot), absl::StatusCode::kInvalidArgument);
  slot = SlotAt(1);
  for (const char* const id : {"", "no identity", "1:2", "1:1:1"}) {
    slot.id = id;
    EXPECT_NE(code(slot), absl::StatusCode::kOk) << id;
  }
}

INSTANTIATE_TEST_SUITE_P(Broadcasters, BroadcastContract, testing::ValuesIn(BroadcastersUnderTest()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace troupe::transport::test
