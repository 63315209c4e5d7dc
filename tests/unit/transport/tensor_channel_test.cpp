// The contract of a tensor channel, over every form of it.
#include "transport/tensor_channel.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "tests/unit/transport/test_support.hpp"
#include "transport/arena.hpp"
#include "transport/fake_tensor_channel.hpp"
#include "transport/local_channel.hpp"
#include "transport/remote_channel.hpp"
#include "transport/steady_clock.hpp"
#include "transport/stream_endpoint.hpp"

namespace troupe::transport {
namespace {

constexpr Bytes kCapacity = MiB(1);

// An owner that puts and a reader elsewhere that fetches.
struct ChannelPair {
  std::shared_ptr<TemporaryDirectory> directory;
  std::unique_ptr<TensorChannel> owner;
  std::unique_ptr<TensorChannel> reader;
};
using MakePair = std::function<ChannelPair()>;

std::unique_ptr<TensorChannel> MakeLocal(const TemporaryDirectory& directory, const std::string& name) {
  auto channel = LocalChannel::Create({name, directory / name, kCapacity, {directory.path()}, "", ""});
  EXPECT_TRUE(channel.ok()) << channel.status();
  return *std::move(channel);
}
ChannelPair FakePair() {
  auto world = FakeTensorChannel::NewWorld();
  return {nullptr, std::make_unique<FakeTensorChannel>(world, kCapacity),
          std::make_unique<FakeTensorChannel>(world, kCapacity)};
}
ChannelPair FakeRemotePair() {
  auto world = FakeTensorChannel::NewWorld();
  return {nullptr, std::make_unique<FakeTensorChannel>(world, kCapacity, "here"),
          std::make_unique<FakeTensorChannel>(world, kCapacity, "there")};
}
ChannelPair LocalPair() {
  auto directory = std::make_shared<TemporaryDirectory>();
  return {directory, MakeLocal(*directory, "owner"), MakeLocal(*directory, "reader")};
}

absl::StatusOr<std::unique_ptr<RemoteEndpoint>> StartStream(SliceSource source) {
  return StreamEndpoint::Start({}, std::move(source));
}

// Two hosts, as each channel is told: each has its own host id.
std::unique_ptr<TensorChannel> MakeRemote(const TemporaryDirectory& directory, const std::string& name) {
  auto channel = RemoteChannel::Create(
      {{name, directory / name, kCapacity, {directory.path()}, "", name + "-host"}, StartStream});
  EXPECT_TRUE(channel.ok()) << channel.status();
  return *std::move(channel);
}
ChannelPair RemotePair() {
  auto directory = std::make_shared<TemporaryDirectory>();
  return {directory, MakeRemote(*directory, "owner"), MakeRemote(*directory, "reader")};
}

// An owner on another host may hold a slice a moment longer than the reader's fetch lasts: until the last
// acknowledgement.
void AwaitUnused(const TensorChannel& channel) {
  const Time deadline = SteadyNow() + kLong;
  while (channel.used() > Bytes(0) && SteadyNow() < deadline) std::this_thread::yield();
  EXPECT_EQ(channel.used(), Bytes(0));
}

struct Form {
  const char* name;
  MakePair make;
};
void PrintTo(const Form& form, std::ostream* out) {
  *out << form.name;
}
class TensorChannelContract : public testing::TestWithParam<Form> {
 protected:
  TensorChannelContract() : pair_(GetParam().make()) {}
  ChannelPair pair_;
  TensorChannel& owner_ = *pair_.owner;
  TensorChannel& reader_ = *pair_.reader;
};

std::string Pattern(std::size_t size) {
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 131 + size);
  return bytes;
}
std::string TextOf(const TensorData& data) {
  return {reinterpret_cast<const char*>(data.bytes().data()), data.bytes().size()};
}

TEST_P(TensorChannelContract, CarriesEverySize) {
  for (const std::size_t size : {0U, 1U, 1000U, 65536U, 65537U, 500000U}) {
    const std::string bytes = Pattern(size);
    auto ref = owner_.Put(AsBytes(bytes), "x");
    ASSERT_TRUE(ref.ok()) << ref.status();
    EXPECT_EQ(ref->has_arena(), Bytes(size) > kInlineLimit);
    EXPECT_EQ(SizeOf(*ref), Bytes(size));
    for (TensorChannel* channel : {&reader_, &owner_}) {
      auto data = channel->Fetch(*ref, kLong);
      ASSERT_TRUE(data.ok()) << data.status();
      EXPECT_EQ(TextOf(*data), bytes);
      EXPECT_TRUE(channel->Near(data->ref())) << "a tensor that was fetched can be mapped";
      auto again = channel->Fetch(data->ref(), kLong);
      ASSERT_TRUE(again.ok()) << again.status();
      EXPECT_EQ(TextOf(*again), bytes) << "the reference that came with the data can be fetched, too";
    }
    EXPECT_TRUE(owner_.Release(*ref).ok());
  }
  AwaitUnused(owner_);
  AwaitUnused(reader_);
}

TEST_P(TensorChannelContract, IsWrittenInPlace) {
  auto room = owner_.Reserve(Bytes(100000));
  ASSERT_TRUE(room.ok()) << room.status();
  ASSERT_EQ(room->bytes().size(), 100000U);
  std::memset(room->bytes().data(), 7, room->bytes().size());
  const proto::TensorRef ref = room->Commit();
  EXPECT_EQ(TextOf(*reader_.Fetch(ref, kLong)), std::string(100000, '\7'));
  EXPECT_TRUE(owner_.Release(ref).ok());
}

TEST_P(TensorChannelContract, ADroppedReservationFreesItsRoom) {
  {
    auto room = owner_.Reserve(Bytes(600000));
    ASSERT_TRUE(room.ok()) << room.status();
    Reservation moved = *std::move(room);
    EXPECT_TRUE(absl::IsResourceExhausted(owner_.Reserve(Bytes(600000)).status()));
    moved = Reservation();
    EXPECT_TRUE(owner_.Reserve(Bytes(600000)).ok());
  }
  EXPECT_EQ(owner_.used(), Bytes(0));
}

TEST_P(TensorChannelContract, IsBounded) {
  std::vector<proto::TensorRef> refs;
  absl::Status full;
  while (full.ok()) {
    auto ref = owner_.Put(AsBytes(Pattern(100000)), "image");
    full = ref.status();
    if (ref.ok()) refs.push_back(*ref);
    ASSERT_LE(refs.size(), 11U);
  }
  EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
  EXPECT_NE(full.message().find("image"), std::string::npos);
  EXPECT_GE(refs.size(), 8U);
  EXPECT_LE(owner_.used(), owner_.capacity());
  for (const proto::TensorRef& ref : refs) EXPECT_TRUE(owner_.Release(ref).ok());
  EXPECT_TRUE(owner_.Reserve(Bytes(900000)).ok()) << "the whole arena is free again, in one piece";
}

TEST_P(TensorChannelContract, AReleasedReferenceIsRefused) {
  auto ref = owner_.Put(AsBytes(Pattern(100000)), "x");
  ASSERT_TRUE(owner_.Release(*ref).ok());
  EXPECT_TRUE(absl::IsNotFound(owner_.Release(*ref)));
  EXPECT_TRUE(absl::IsNotFound(owner_.Retain(*ref)));
  EXPECT_TRUE(absl::IsNotFound(reader_.Fetch(*ref, kLong).status()));
  auto next = owner_.Put(AsBytes(Pattern(100000)), "y");
  EXPECT_TRUE(absl::IsNotFound(reader_.Fetch(*ref, kLong).status())) << "another slice has the place now";
  EXPECT_TRUE(owner_.Release(*next).ok());
}

TEST_P(TensorChannelContract, RetainAsksForOneMoreRelease) {
  auto ref = owner_.Put(AsBytes(Pattern(100000)), "x");
  ASSERT_TRUE(owner_.Retain(*ref).ok());
  ASSERT_TRUE(owner_.Release(*ref).ok());
  EXPECT_TRUE(reader_.Fetch(*ref, kLong).ok());
  ASSERT_TRUE(owner_.Release(*ref).ok());
  AwaitUnused(owner_);
}

TEST_P(TensorChannelContract, OnlyTheOwnerReleases) {
  auto ref = owner_.Put(AsBytes(Pattern(100000)), "x");
  EXPECT_TRUE(absl::IsFailedPrecondition(reader_.Release(*ref)));
  EXPECT_TRUE(absl::IsFailedPrecondition(reader_.Retain(*ref)));
  EXPECT_TRUE(owner_.Release(*ref).ok());
  EXPECT_TRUE(reader_.Release(proto::TensorRef()).ok()) << "an inline tensor has no slice to release";
}

TEST_P(TensorChannelContract, BadReferencesAreRefused) {
  auto ref = owner_.Put(AsBytes(Pattern(100000)), "x");
  proto::TensorRef longer = *ref;
  longer.mutable_arena()->set_length(100001);
  EXPECT_TRUE(absl::IsDataLoss(reader_.Fetch(longer, kLong).status()));
  EXPECT_TRUE(absl::IsDataLoss(owner_.Fetch(longer, kLong).status()));
  longer.mutable_arena()->set_length(~std::uint64_t{0});
  EXPECT_FALSE(reader_.Fetch(longer, kLong).ok());
  proto::TensorRef elsewhere = *ref;
  elsewhere.mutable_arena()->set_offset(ref->arena().offset() + 64);
  EXPECT_FALSE(reader_.Fetch(elsewhere, kLong).ok());
  proto::TensorRef inlined;
  inlined.set_inlined(std::string(kInlineLimit.count() + 1, 'x'));
  EXPECT_TRUE(absl::IsInvalidArgument(reader_.Fetch(inlined, kLong).status()));
  EXPECT_TRUE(owner_.Release(*ref).ok());
}

INSTANTIATE_TEST_SUITE_P(Forms, TensorChannelContract,
                         testing::Values(Form{"Fake", FakePair}, Form{"FakeRemote", FakeRemotePair},
                                         Form{"Local", LocalPair}, Form{"Remote", RemotePair}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(RemoteChannel, WhatWasFetchedCanBeMappedHereAndGoesWithItsLastHolder) {
  const TemporaryDirectory directory;
  auto owner = MakeRemote(directory, "owner");
  auto reader = MakeRemote(directory, "reader");
  auto ref = owner->Put(AsBytes(Pattern(200000)), "x");
  auto data = reader->Fetch(*ref, kLong);
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_TRUE(owner->Release(*ref).ok());
  AwaitUnused(*owner);
  // A worker beside the reader, on the reader's host.
  auto worker = LocalChannel::Create(
      {"worker", directory / "worker", kCapacity, {directory.path()}, "", "reader-host"});
  auto mapped = (*worker)->Fetch(data->ref());
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  EXPECT_EQ(TextOf(*mapped), Pattern(200000));
  EXPECT_GT(reader->used(), Bytes(0));
  data = absl::CancelledError("dropped");
  EXPECT_EQ(reader->used(), Bytes(0));
}

TEST(RemoteChannel, ACutReadsNothingOfOthersAndServesNoReader) {
  const TemporaryDirectory directory;
  auto owner = MakeRemote(directory, "owner");
  auto other = MakeRemote(directory, "other");
  Time now{};
  auto cut = std::make_shared<ChannelCut>([&now] { return now; });
  auto channel = RemoteChannel::Create(
      {{"cut", directory / "cut", kCapacity, {directory.path()}, "", "cut-host"}, StartStream, cut});
  ASSERT_TRUE(channel.ok()) << channel.status();
  auto theirs = owner->Put(AsBytes(Pattern(200000)), "theirs");
  auto ours = (*channel)->Put(AsBytes(Pattern(100000)), "ours");
  auto little = owner->Put(AsBytes(Pattern(100)), "little");
  EXPECT_TRUE((*channel)->Fetch(*theirs, kLong).ok()) << "no network is cut yet";
  cut->Until(now + std::chrono::seconds(2));
  cut->Until(now + std::chrono::seconds(1));  // a longer cut is not made shorter
  now += std::chrono::milliseconds(1500);
  const auto refused = (*channel)->Fetch(*theirs, kLong).status();
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  const auto unserved = other->Fetch(*ours, kLong).status();
  EXPECT_TRUE(absl::IsUnavailable(unserved)) << unserved;
  EXPECT_TRUE((*channel)->Fetch(*ours, kLong).ok()) << "the bytes are in the channel's own arena";
  EXPECT_TRUE((*channel)->Fetch(*little, kLong).ok()) << "the bytes are in the message";
  now += std::chrono::milliseconds(500);
  EXPECT_TRUE((*channel)->Fetch(*theirs, kLong).ok());
  EXPECT_TRUE(other->Fetch(*ours, kLong).ok());
}

TEST(RemoteChannel, FullHereMeansNoFetch) {
  const TemporaryDirectory directory;
  auto owner = MakeRemote(directory, "owner");
  auto reader = MakeRemote(directory, "reader");
  auto full = reader->Reserve(Bytes(900000));
  auto ref = owner->Put(AsBytes(Pattern(200000)), "x");
  EXPECT_TRUE(absl::IsResourceExhausted(reader->Fetch(*ref, kLong).status()));
  full = absl::CancelledError("dropped");
  EXPECT_TRUE(reader->Fetch(*ref, kLong).ok());
}

// A worker beside the owner; the owner serves the worker's outputs to others.
TEST(RemoteChannel, ServesTheArenasThatWereExported) {
  const TemporaryDirectory directory;
  auto made = RemoteChannel::Create(
      {{"owner", directory / "owner", kCapacity, {directory.path()}, "", "owner-host"}, StartStream});
  ASSERT_TRUE(made.ok()) << made.status();
  RemoteChannel& owner = **made;
  auto reader = MakeRemote(directory, "reader");
  auto worker = LocalChannel::Create(
      {"worker", directory / "worker", kCapacity, {directory.path()}, owner.endpoint(), "owner-host"});
  auto ref = (*worker)->Put(AsBytes(Pattern(300000)), "y");
  ASSERT_TRUE(ref.ok()) << ref.status();
  EXPECT_FALSE(reader->Near(*ref));
  EXPECT_TRUE(owner.Near(*ref));
  EXPECT_TRUE(absl::IsNotFound(reader->Fetch(*ref, kLong).status()))
      << "the worker's arena is not exported yet";

  auto memory = MemoryFile::Open(UniqueFd(dup((*worker)->arena()->fd())), MemoryFile::Access::kReadOnly);
  ASSERT_TRUE(memory.ok()) << memory.status();
  auto exported =
      owner.exports()->Add((*worker)->arena()->id(), std::make_shared<const MemoryFile>(*std::move(memory)));
  EXPECT_EQ(owner.exports()->size(), 1U);
  auto data = reader->Fetch(*ref, kLong);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(TextOf(*data), Pattern(300000));
  EXPECT_EQ(owner.used(), Bytes(0)) << "the owner sends the bytes from where they lie";

  proto::TensorRef longer = *ref;
  longer.mutable_arena()->set_length(300001);
  EXPECT_FALSE(reader->Fetch(longer, kLong).ok());
  ASSERT_TRUE((*worker)->Release(*ref).ok());
  EXPECT_TRUE(absl::IsNotFound(reader->Fetch(*ref, kLong).status())) << "the worker has released the slice";

  auto next = (*worker)->Put(AsBytes(Pattern(300000)), "y");
  EXPECT_TRUE(reader->Fetch(*next, kLong).ok());
  exported.reset();
  EXPECT_EQ(owner.exports()->size(), 0U);
  EXPECT_TRUE(absl::IsNotFound(reader->Fetch(*next, kLong).status()))
      << "the worker's arena is no longer exported";
}

TEST(FakeTensorChannel, FetchesBetweenHostsWaitAndFailAsTold) {
  auto world = FakeTensorChannel::NewWorld();
  FakeTensorChannel owner(world, kCapacity, "here");
  FakeTensorChannel reader(world, kCapacity, "there");
  const auto ref = owner.Put(AsBytes(Pattern(100000)), "x");
  std::vector<absl::StatusOr<TensorData>> answers;
  const auto fetch = [&] {
    reader.FetchAsync(*ref, kLong,
                      [&](absl::StatusOr<TensorData> data) { answers.push_back(std::move(data)); });
  };
  reader.Hold();
  fetch();
  fetch();
  EXPECT_EQ(reader.held(), 2U);
  EXPECT_EQ(reader.used(), Bytes(200000)) << "the room for the fetched bytes is taken";
  EXPECT_TRUE(reader.CompleteNext(absl::UnavailableError("the owner is gone")));
  EXPECT_EQ(reader.used(), Bytes(100000));
  reader.Resume();
  EXPECT_FALSE(reader.CompleteNext());
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_TRUE(absl::IsUnavailable(answers[0].status()));
  EXPECT_EQ(TextOf(*answers[1]), Pattern(100000));
  answers.clear();
  EXPECT_EQ(reader.used(), Bytes(0));
}

TEST(RemoteChannel, AnOwnerWithoutEndpointIsOutOfReach) {
  const TemporaryDirectory directory;
  auto reader = MakeRemote(directory, "reader");
  auto owner =
      LocalChannel::Create({"owner", directory / "owner", kCapacity, {directory.path()}, "", "owner-host"});
  auto ref = (*owner)->Put(AsBytes(Pattern(200000)), "x");
  EXPECT_TRUE(absl::IsFailedPrecondition(reader->Fetch(*ref, kLong).status()));
}

TEST(LocalChannel, HandsOutOtherMemoryUntilItIsWithdrawn) {
  const TemporaryDirectory directory;
  auto owner = LocalChannel::Create({"owner", directory / "owner", kCapacity, {directory.path()}, "", ""});
  auto reader = LocalChannel::Create({"reader", directory / "reader", kCapacity, {directory.path()}, "", ""});
  ASSERT_TRUE(owner.ok() && reader.ok());
  auto memory = MemoryFile::Create("other", KiB(64));
  memory->data()[5] = std::byte{7};
  const auto ref = (*owner)->HandOut(*memory->ReadOnlyDescriptor());
  ASSERT_TRUE(ref.ok()) << ref.status();
  auto descriptor = (*reader)->Ask(*ref);
  ASSERT_TRUE(descriptor.ok()) << descriptor.status();
  auto mapped = MemoryFile::Open(*std::move(descriptor), MemoryFile::Access::kReadOnly);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  EXPECT_EQ(mapped->data()[5], std::byte{7});
  (*owner)->Withdraw((*owner)->ArenaAddress().arena());  // the owner's own arena cannot be withdrawn
  EXPECT_TRUE((*reader)->Ask((*owner)->ArenaAddress()).ok());
  (*owner)->Withdraw(ref->arena());
  EXPECT_TRUE(absl::IsNotFound((*reader)->Ask(*ref).status()));
  EXPECT_EQ(mapped->data()[5], std::byte{7});  // a slice that was opened stays open
  auto outside = *ref;
  outside.set_socket("/tmp/other");
  EXPECT_TRUE(absl::IsPermissionDenied((*reader)->Ask(outside).status()));
  owner->reset();
  EXPECT_TRUE(absl::IsUnavailable((*reader)->Ask(*ref).status()));
}

TEST(LocalChannel, IsZeroCopyAndPinsWhatIsReadHere) {
  const TemporaryDirectory directory;
  auto channel = MakeLocal(directory, "owner");
  auto room = channel->Reserve(Bytes(100000));
  const std::byte* place = room->bytes().data();
  const proto::TensorRef ref = room->Commit();
  {
    auto data = channel->Fetch(ref);
    EXPECT_EQ(data->bytes().data(), place);
    EXPECT_TRUE(channel->Release(ref).ok());
    EXPECT_GT(channel->used(), Bytes(0)) << "the bytes are still being read";
  }
  EXPECT_EQ(channel->used(), Bytes(0));
}

TEST(LocalChannel, LeavesOtherHostsAlone) {
  const TemporaryDirectory directory;
  auto made = LocalChannel::Create({"here", directory / "here", kCapacity, {directory.path()}, "", ""});
  LocalChannel& channel = **made;
  proto::TensorRef ref;
  *ref.mutable_arena() = channel.ArenaAddress();
  EXPECT_TRUE(channel.Near(ref));
  ref.mutable_arena()->set_host("elsewhere");
  EXPECT_FALSE(channel.Near(ref));
  EXPECT_TRUE(absl::IsFailedPrecondition(channel.Fetch(ref).status()));
}

}  // namespace
}  // namespace troupe::transport
