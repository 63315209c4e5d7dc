#include "transport/arena.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "base/random.hpp"
#include "tests/unit/transport/test_support.hpp"
#include "transport/arena_client.hpp"
#include "transport/arena_server.hpp"
#include "transport/arena_wire.hpp"

namespace troupe::transport {
namespace {

proto::ArenaRef RefTo(const Arena& arena, const ArenaSlice& slice, const std::string& socket) {
  proto::ArenaRef ref;
  ref.set_host(HostId());
  ref.set_socket(socket);
  ref.set_arena(arena.id());
  ref.set_offset(slice.offset);
  ref.set_length(slice.bytes.size());
  ref.set_slice(slice.slice);
  return ref;
}

TEST(Arena, GivesAlignedBoundedSlices) {
  auto arena = *Arena::Create("arena", KiB(8));
  auto slice = arena->Allocate(Bytes(1000));
  ASSERT_TRUE(slice.ok()) << slice.status();
  EXPECT_EQ(slice->bytes.size(), 1000U);
  EXPECT_EQ(slice->offset % 64, 0U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(slice->bytes.data()) % 64, 0U);
  EXPECT_TRUE(absl::IsResourceExhausted(arena->Allocate(KiB(8)).status()));
  EXPECT_TRUE(absl::IsResourceExhausted(arena->Allocate(Bytes(~std::uint64_t{0})).status()));
  EXPECT_TRUE(arena->Release(slice->offset, slice->slice).ok());
  EXPECT_EQ(arena->used(), Bytes(0));
  EXPECT_EQ(arena->slices(), 0U);
}

TEST(Arena, CountsReferencesAndRefusesStaleOnes) {
  auto arena = *Arena::Create("arena", KiB(8));
  const ArenaSlice slice = *arena->Allocate(Bytes(100));
  EXPECT_TRUE(arena->Retain(slice.offset, slice.slice).ok());
  EXPECT_TRUE(arena->Pin(slice.offset, slice.slice, 100).ok());
  EXPECT_TRUE(absl::IsDataLoss(arena->Pin(slice.offset, slice.slice, 101).status()));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(arena->Release(slice.offset, slice.slice).ok());
  EXPECT_TRUE(absl::IsNotFound(arena->Release(slice.offset, slice.slice)));
  const ArenaSlice again = *arena->Allocate(Bytes(100));
  ASSERT_EQ(again.offset, slice.offset) << "the slice has the same place";
  EXPECT_TRUE(absl::IsNotFound(arena->Release(slice.offset, slice.slice)))
      << "the slice at that place is another one";
  EXPECT_TRUE(absl::IsNotFound(arena->Retain(slice.offset, slice.slice)));
  EXPECT_TRUE(absl::IsNotFound(arena->Pin(slice.offset + 64, again.slice, 1).status()));
}

TEST(Arena, ResolveTrustsNothing) {
  auto arena = *Arena::Create("arena", KiB(64));
  const ArenaSlice slice = *arena->Allocate(Bytes(1000));
  auto memory = MemoryFile::Open(UniqueFd(dup(arena->fd())), MemoryFile::Access::kReadOnly);
  const proto::ArenaRef good = RefTo(*arena, slice, "/s");
  EXPECT_TRUE(ResolveSlice(*memory, good).ok());
  auto with = [&](auto change) {
    proto::ArenaRef bad = good;
    change(bad);
    return ResolveSlice(*memory, bad).status();
  };
  EXPECT_TRUE(absl::IsDataLoss(with([](auto& ref) { ref.set_length(1001); })));
  EXPECT_TRUE(absl::IsDataLoss(with([](auto& ref) { ref.set_length(~std::uint64_t{0}); })));
  EXPECT_TRUE(absl::IsDataLoss(with([](auto& ref) { ref.set_offset(0); })));
  EXPECT_TRUE(absl::IsDataLoss(with([](auto& ref) { ref.set_offset(63); })));
  EXPECT_TRUE(absl::IsDataLoss(with([](auto& ref) { ref.set_offset(~std::uint64_t{0} - 63); })));
  EXPECT_TRUE(absl::IsNotFound(with([](auto& ref) { ref.set_offset(ref.offset() + 64); })));
  EXPECT_TRUE(absl::IsNotFound(with([](auto& ref) { ref.set_slice(ref.slice() + 1); })));
  EXPECT_TRUE(absl::IsNotFound(with([](auto& ref) { ref.set_slice(0); })));
  EXPECT_TRUE(absl::IsNotFound(with([](auto& ref) { ref.set_arena(1); })));
  ASSERT_TRUE(arena->Release(slice.offset, slice.slice).ok());
  EXPECT_TRUE(absl::IsNotFound(ResolveSlice(*memory, good).status()));
}

TEST(Arena, IsThreadSafe) {
  auto arena = *Arena::Create("arena", MiB(1));
  auto churn = [&](std::uint64_t seed) {
    Random random(seed);
    for (int i = 0; i < 2000; ++i) {
      auto slice = arena->Allocate(Bytes(1 + random.Below(5000)));
      if (!slice.ok()) continue;
      std::memset(slice->bytes.data(), static_cast<int>(seed), slice->bytes.size());
      for (const std::byte byte : slice->bytes) ASSERT_EQ(byte, static_cast<std::byte>(seed));
      ASSERT_TRUE(arena->Release(slice->offset, slice->slice).ok());
    }
  };
  {
    std::jthread first(churn, 1);
    std::jthread second(churn, 2);
  }
  EXPECT_EQ(arena->used(), Bytes(0));
}

TEST(ArenaServer, AnotherProcessReadsWhatWeWrote) {
  const TemporaryDirectory directory;
  auto arena = *Arena::Create("arena", MiB(1));
  ArenaSlice slice = *arena->Allocate(Bytes(300000));
  for (std::size_t i = 0; i < slice.bytes.size(); ++i) slice.bytes[i] = static_cast<std::byte>(i * 7);
  const proto::ArenaRef ref = RefTo(*arena, slice, directory / "arena");
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  const pid_t child = fork();
  if (child == 0) {  // forked before there are threads; waits for the server
    char byte = 0;
    if (read(go[0], &byte, 1) != 1) _exit(2);
    ArenaClient client(ArenaClient::Options{.directories = {directory.path()}});
    auto resolved = client.Resolve(ref);
    if (!resolved.ok()) _exit(3);
    for (std::size_t i = 0; i < resolved->bytes.size(); ++i) {
      if (resolved->bytes[i] != static_cast<std::byte>(i * 7)) _exit(4);
    }
    _exit(resolved->memory->writable() ? 5 : 0);
  }
  auto server = ArenaServer::Start(directory / "arena");
  ASSERT_TRUE(server.ok()) << server.status();
  ASSERT_TRUE((*server)->Add(arena).ok());
  ASSERT_EQ(write(go[1], "g", 1), 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  close(go[0]);
  close(go[1]);
}

class ArenaClientTest : public testing::Test {
 protected:
  ArenaClientTest() : slice_(*arena_->Allocate(Bytes(100))) {
    server_ = *ArenaServer::Start(directory_ / "arena");
    EXPECT_TRUE(server_->Add(arena_).ok());
    ref_ = RefTo(*arena_, slice_, directory_ / "arena");
  }
  ArenaClient Client(std::size_t mappings = 8) {
    return ArenaClient(
        ArenaClient::Options{.directories = {directory_.path()}, .timeout = kLong, .mappings = mappings});
  }

  TemporaryDirectory directory_;
  std::shared_ptr<Arena> arena_ = *Arena::Create("arena", KiB(64));
  ArenaSlice slice_;
  std::unique_ptr<ArenaServer> server_;
  proto::ArenaRef ref_;
};

TEST_F(ArenaClientTest, MapsOnceAndKeepsBytesAlive) {
  auto client = Client();
  slice_.bytes[0] = std::byte{9};
  auto first = client.Resolve(ref_);
  ASSERT_TRUE(first.ok()) << first.status();
  auto second = client.Resolve(ref_);
  EXPECT_EQ(first->bytes.data(), second->bytes.data());
  EXPECT_EQ(client.mappings(), 1U);
  server_.reset();
  EXPECT_TRUE(client.Resolve(ref_).ok()) << "the arena is mapped already";
  client.Forget(ref_.socket());
  EXPECT_EQ(client.mappings(), 0U);
  EXPECT_EQ(first->bytes[0], std::byte{9});
  EXPECT_TRUE(absl::IsUnavailable(client.Resolve(ref_).status()));
}

TEST_F(ArenaClientTest, RefusesForeignPlaces) {
  auto client = Client();
  auto with = [&](auto change) {
    proto::ArenaRef bad = ref_;
    change(bad);
    return client.Resolve(bad).status();
  };
  EXPECT_TRUE(absl::IsFailedPrecondition(with([](auto& ref) { ref.set_host("elsewhere"); })));
  EXPECT_TRUE(absl::IsPermissionDenied(with([](auto& ref) { ref.set_socket("/tmp/other"); })));
  EXPECT_TRUE(absl::IsPermissionDenied(with([&](auto& ref) { ref.set_socket(directory_ / "../arena"); })));
  EXPECT_TRUE(absl::IsPermissionDenied(with([&](auto& ref) { ref.set_socket(directory_.path()); })));
  EXPECT_TRUE(
      absl::IsPermissionDenied(with([&](auto& ref) { ref.set_socket(directory_.path() + "x/arena"); })));
  EXPECT_TRUE(absl::IsPermissionDenied(with([](auto& ref) { ref.set_socket("arena"); })));
  EXPECT_TRUE(absl::IsNotFound(with([](auto& ref) { ref.set_arena(12345); })));
  EXPECT_TRUE(absl::IsUnavailable(with([&](auto& ref) { ref.set_socket(directory_ / "absent"); })));
  EXPECT_FALSE(client.Reachable(proto::ArenaRef()));
}

TEST_F(ArenaClientTest, DropsMappingsOfArenasThatAreNoMore) {
  auto client = Client();
  ASSERT_TRUE(client.Resolve(ref_).ok());
  server_->Remove(arena_->id());
  auto next = *Arena::Create("next", KiB(64));
  ASSERT_TRUE(server_->Add(next).ok());
  const proto::ArenaRef ref = RefTo(*next, *next->Allocate(Bytes(10)), ref_.socket());
  ASSERT_TRUE(client.Resolve(ref).ok());
  EXPECT_EQ(client.mappings(), 1U);
  EXPECT_TRUE(absl::IsNotFound(client.Resolve(ref_).status()));
}

TEST_F(ArenaClientTest, BoundsItsMappings) {
  auto client = Client(2);
  for (int i = 0; i < 5; ++i) {
    auto arena = *Arena::Create("more", KiB(64));
    ASSERT_TRUE(server_->Add(arena).ok());
    ASSERT_TRUE(client.Resolve(RefTo(*arena, *arena->Allocate(Bytes(10)), ref_.socket())).ok());
    EXPECT_LE(client.mappings(), 2U);
  }
}

TEST_F(ArenaClientTest, ServerDropsNonsenseAndServesOn) {
  auto babbler = ConnectUnix(ref_.socket(), kLong);
  ASSERT_TRUE(babbler->Send("give me everything", {}, kLong).ok());
  EXPECT_TRUE(absl::IsUnavailable(babbler->Receive(kLong).status()));
  auto silent = ConnectUnix(ref_.socket(), kLong);
  auto client = Client();
  EXPECT_TRUE(client.Resolve(ref_).ok());
  for (int i = 1; i < ArenaServer::kArenas; ++i) ASSERT_TRUE(server_->Add(*Arena::Create("a", KiB(4))).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(server_->Add(*Arena::Create("a", KiB(4)))));
}

void AwaitClosed(UnixConnection& connection) {
  EXPECT_TRUE(absl::IsUnavailable(connection.Receive(kLong).status()));
}

class ArenaStrangersTest : public testing::Test {
 protected:
  UnixConnection Connect() { return *ConnectUnix(directory_ / "arena", kLong); }
  TemporaryDirectory directory_;
  std::shared_ptr<SocketRefusals> refusals_ = std::make_shared<SocketRefusals>();
  std::unique_ptr<ArenaServer> server_ = *ArenaServer::Start(directory_ / "arena", refusals_);
};

TEST_F(ArenaStrangersTest, WhatMakesNoSenseClosesItsConnectionAndIsCounted) {
  const ArenaQuestion good{kArenaMagic, kArenaVersion, 7};
  const std::string question(reinterpret_cast<const char*>(&good), sizeof good);
  std::string other_version = question;
  other_version[4] ^= 1;
  for (const std::string& said : {std::string("x"), question + "x", std::string(60000, 'x'), other_version}) {
    auto connection = Connect();
    ASSERT_TRUE(connection.Send(said, {}, kLong).ok());
    AwaitClosed(connection);
  }
  auto connection = Connect();
  const int descriptor = connection.fd();
  ASSERT_TRUE(connection.Send(question, std::span(&descriptor, 1), kLong).ok());
  AwaitClosed(connection);
  EXPECT_EQ(refusals_->count(SocketRefusal::kBrokenMessage), 5u);
}

TEST_F(ArenaStrangersTest, ConnectionsThatAskNothingLockNoReaderOut) {
  auto arena = *Arena::Create("arena", KiB(64));
  const ArenaSlice slice = *arena->Allocate(Bytes(100));
  ASSERT_TRUE(server_->Add(arena).ok());
  std::vector<UnixConnection> silent;
  for (std::size_t i = 0; i < ArenaServer::kPeers; ++i) silent.push_back(Connect());
  ArenaClient client(ArenaClient::Options{.directories = {directory_.path()}, .timeout = kLong});
  EXPECT_TRUE(client.Resolve(RefTo(*arena, slice, directory_ / "arena")).ok());
  AwaitClosed(silent.front());
  EXPECT_EQ(refusals_->count(SocketRefusal::kCrowdedOut), 1u);
}

}  // namespace
}  // namespace troupe::transport
