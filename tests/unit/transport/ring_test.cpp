#include "transport/ring.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "base/random.hpp"
#include "proto/worker.pb.h"
#include "tests/unit/transport/test_support.hpp"
#include "transport/ring_message.hpp"

namespace troupe::transport {
namespace {

std::shared_ptr<RingMemory> MakeRing(Bytes capacity = KiB(4)) {
  auto ring = RingMemory::Create("ring-test", capacity);
  EXPECT_TRUE(ring.ok()) << ring.status();
  return *ring;
}

std::span<const std::byte> AsBytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string PayloadOf(std::uint64_t sequence, std::size_t size) {
  std::string payload(size, '\0');
  for (std::size_t i = 0; i < size; ++i) payload[i] = static_cast<char>(sequence * 31 + i);
  return payload;
}

// The words of the control block to which a hostile process would write. The offsets are those of ring.cpp.
std::atomic_ref<std::uint64_t> Word(const RingMemory& ring, std::size_t offset) {
  auto* base = reinterpret_cast<std::byte*>(&ring.control());
  return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(base + offset));
}
constexpr std::size_t kHeadOffset = 64;
constexpr std::size_t kTailOffset = 128;

TEST(Ring, CarriesRecordsInOrderAcrossTheEnd) {
  const auto ring = MakeRing();
  auto writer = RingWriter::Attach(ring);
  auto reader = RingReader::Attach(ring);
  Random random(7);
  RingRecord record;
  for (std::uint64_t i = 0; i < 5000; ++i) {
    const std::string payload = PayloadOf(i, random.Below(1500));
    ASSERT_EQ(*writer->TryWrite(3, 9, i, AsBytes(payload)), true);
    ASSERT_EQ(*reader->TryRead(record), true);
    ASSERT_EQ(record.op, 3);
    ASSERT_EQ(record.flags, 9);
    ASSERT_EQ(record.sequence, i);
    ASSERT_EQ(record.payload, payload);
  }
  EXPECT_EQ(*reader->TryRead(record), false);
}

TEST(Ring, SaysWhenItIsFullAndGoesOnWhenRead) {
  const auto ring = MakeRing();
  auto writer = RingWriter::Attach(ring);
  auto reader = RingReader::Attach(ring);
  const std::string payload(1008, 'x');
  for (int i = 0; i < 4; ++i) ASSERT_EQ(*writer->TryWrite(1, 0, i, AsBytes(payload)), true);
  EXPECT_EQ(*writer->TryWrite(1, 0, 4, {}), false);
  EXPECT_TRUE(absl::IsDeadlineExceeded(writer->Write(1, 0, 4, {}, std::chrono::milliseconds(1))));
  RingRecord record;
  ASSERT_EQ(*reader->TryRead(record), true);
  EXPECT_EQ(*writer->TryWrite(1, 0, 4, AsBytes(payload)), true);
}

TEST(Ring, RefusesWhatIsTooLarge) {
  auto writer = RingWriter::Attach(MakeRing());
  EXPECT_TRUE(absl::IsInvalidArgument(writer->TryWrite(1, 0, 0, AsBytes(std::string(2049, 'x'))).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(RingMemory::Create("r", Bytes(5000)).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(RingMemory::Create("r", Bytes(2048)).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(RingMemory::Create("r", MiB(128)).status()));
}

TEST(Ring, OpensByDescriptorAndRefusesOthers) {
  const auto ring = MakeRing();
  auto reopen = [&](int memory, int doorbell) {
    return RingMemory::Open(UniqueFd(dup(memory)), UniqueFd(dup(doorbell)));
  };
  EXPECT_TRUE(reopen(ring->memory_fd(), ring->doorbell_fd()).ok());
  EXPECT_FALSE(reopen(ring->memory_fd(), STDIN_FILENO).ok());
  EXPECT_FALSE(reopen(ring->memory_fd(), ring->memory_fd()).ok());
  EXPECT_FALSE(reopen(ring->doorbell_fd(), ring->doorbell_fd()).ok());
  auto other = MemoryFile::Create("zeros", KiB(16));
  EXPECT_TRUE(absl::IsInvalidArgument(reopen(other->fd(), ring->doorbell_fd()).status()));
  Word(*ring, 16).store(KiB(64).count());  // a capacity beyond the file
  EXPECT_TRUE(absl::IsInvalidArgument(reopen(ring->memory_fd(), ring->doorbell_fd()).status()));
}

TEST(Ring, DoorbellRingsOnlyForASleeper) {
  const auto ring = MakeRing();
  auto writer = RingWriter::Attach(ring);
  auto reader = RingReader::Attach(ring);
  auto bell = [&] {
    pollfd entry{reader->doorbell(), POLLIN, 0};
    return poll(&entry, 1, 0) == 1;
  };
  ASSERT_TRUE(*writer->TryWrite(1, 0, 1, {}));
  EXPECT_FALSE(bell());
  EXPECT_FALSE(reader->Arm()) << "a record is there";
  RingRecord record;
  ASSERT_TRUE(*reader->TryRead(record));
  EXPECT_TRUE(reader->Arm());
  EXPECT_FALSE(bell());
  ASSERT_TRUE(*writer->TryWrite(1, 0, 2, {}));
  ASSERT_TRUE(*writer->TryWrite(1, 0, 3, {}));
  EXPECT_TRUE(bell());
  reader->Disarm();
  EXPECT_FALSE(bell());
  EXPECT_TRUE(reader->Wait(Duration::zero()));
}

TEST(Ring, ADoorbellThatTheOtherEndMadeBlockingHoldsNoReader) {
  auto ring = *RingMemory::Create("test", KiB(64));
  auto reader = *RingReader::Attach(ring);
  ASSERT_EQ(fcntl(ring->doorbell_fd(), F_SETFL, 0), 0);
  reader.Disarm();
  auto writer = *RingWriter::Attach(ring);
  EXPECT_TRUE(reader.Arm());
  ASSERT_TRUE(*writer.TryWrite(1, 0, 1, {}));
  EXPECT_TRUE(reader.Wait(kLong));
  reader.Disarm();
}

TEST(Ring, TwoThreadsLoseNoWakeUp) {
  const auto ring = MakeRing();
  constexpr std::uint64_t kCount = 20000;
  std::jthread producer([&] {
    auto writer = RingWriter::Attach(ring);
    Random random(1);
    for (std::uint64_t i = 0; i < kCount; ++i) {
      const std::string payload = PayloadOf(i, random.Below(200));
      ASSERT_TRUE(writer->Write(1, 0, i, AsBytes(payload), kLong).ok());
      if (random.Below(64) == 0) std::this_thread::yield();
    }
  });
  auto reader = RingReader::Attach(ring);
  Random random(1);
  RingRecord record;
  for (std::uint64_t i = 0; i < kCount;) {
    auto read = reader->TryRead(record);
    ASSERT_TRUE(read.ok()) << read.status();
    if (!*read) {
      ASSERT_TRUE(reader->Wait(kLong)) << "lost wake-up at " << i;
      continue;
    }
    ASSERT_EQ(record.sequence, i);
    ASSERT_EQ(record.payload, PayloadOf(i, random.Below(200)));
    random.Below(64);
    ++i;
  }
}

TEST(Ring, RequestAndAnswerWakeEachOtherEveryTime) {
  const auto there = MakeRing();
  const auto back = MakeRing();
  constexpr std::uint64_t kRounds = 3000;
  std::jthread echo([&] {
    auto reader = RingReader::Attach(there);
    auto writer = RingWriter::Attach(back);
    RingRecord record;
    for (std::uint64_t i = 0; i < kRounds; ++i) {
      ASSERT_TRUE(reader->Wait(kLong)) << "lost wake-up at request " << i;
      ASSERT_TRUE(*reader->TryRead(record));
      ASSERT_TRUE(*writer->TryWrite(2, 0, record.sequence, {}));
    }
  });
  auto writer = RingWriter::Attach(there);
  auto reader = RingReader::Attach(back);
  RingRecord record;
  for (std::uint64_t i = 0; i < kRounds; ++i) {
    ASSERT_TRUE(*writer->TryWrite(1, 0, i, {}));
    ASSERT_TRUE(reader->Wait(kLong)) << "lost wake-up at answer " << i;
    ASSERT_TRUE(*reader->TryRead(record));
    ASSERT_EQ(record.sequence, i);
  }
}

TEST(Ring, SurvivesAWriterKilledAtAnyMoment) {
  const auto ring = MakeRing(KiB(64));
  auto reader = RingReader::Attach(ring);
  std::uint64_t expected = 0;
  RingRecord record;
  for (int life = 0; life < 8; ++life) {
    const pid_t child = fork();
    if (child == 0) {  // writes until it is killed, and goes on where the process before it stopped
      auto writer = RingWriter::Attach(ring);
      for (std::uint64_t i = 0;; ++i) {
        const std::string payload = PayloadOf(i, 700);
        if (!writer->Write(1, 0, i, AsBytes(payload), kLong).ok()) _exit(1);
      }
    }
    expected = 0;
    while (expected < 200 + static_cast<std::uint64_t>(life) * 37) {
      auto read = reader->TryRead(record);
      ASSERT_TRUE(read.ok()) << read.status();
      if (!*read) {
        reader->Wait(kLong);
        continue;
      }
      ASSERT_EQ(record.sequence, expected);
      ASSERT_EQ(record.payload, PayloadOf(expected, 700));
      ++expected;
    }
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    for (auto read = reader->TryRead(record);; read = reader->TryRead(record)) {
      ASSERT_TRUE(read.ok()) << read.status();
      if (!*read) break;
      ASSERT_EQ(record.sequence, expected);
      ASSERT_EQ(record.payload, PayloadOf(expected++, 700));
    }
  }
}

TEST(Ring, HostileBytesAreDataLossAndNeverOutOfBounds) {
  Random random(2026);
  int refused = 0;
  for (int round = 0; round < 4000; ++round) {
    const auto ring = MakeRing();
    auto writer = RingWriter::Attach(ring);
    auto reader = RingReader::Attach(ring);
    for (std::uint64_t i = random.Below(4); i > 0; --i) {
      ASSERT_TRUE(*writer->TryWrite(1, 0, i, AsBytes(PayloadOf(i, random.Below(900)))));
    }
    const std::size_t places[] = {kHeadOffset, 4096, 4096 + 16, 4096 + 8 * random.Below(512)};
    const std::uint64_t values[] = {random(), random.Below(8192), random.Below(8192) * 16,
                                    ~std::uint64_t{0} << 4};
    for (std::uint64_t hits = 1 + random.Below(3); hits > 0; --hits) {
      Word(*ring, places[random.Below(4)]).store(values[random.Below(4)]);
    }
    RingRecord record;
    for (int reads = 0; reads < 300; ++reads) {
      auto read = reader->TryRead(record);
      if (!read.ok()) {
        EXPECT_TRUE(absl::IsDataLoss(read.status())) << read.status();
        EXPECT_TRUE(absl::IsDataLoss(reader->TryRead(record).status()))
            << "a ring that is broken stays broken";
        ++refused;
      }
      if (!read.ok() || !*read) break;
      ASSERT_LE(record.payload.size(), 2048U);
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(Ring, ARecordLongerThanWhatWasWrittenIsRefusedAtOnce) {
  for (const std::uint64_t length : {17, 64, 2048, 2049, 4096, 1 << 30}) {
    const auto ring = MakeRing();
    auto writer = RingWriter::Attach(ring);
    auto reader = RingReader::Attach(ring);
    ASSERT_TRUE(*writer->TryWrite(0, 0, 1, AsBytes("sixteen bytes...")));
    Word(*ring, 4096).store(length << 32);  // op and flags 0, then the length
    RingRecord record;
    EXPECT_TRUE(absl::IsDataLoss(reader->TryRead(record).status())) << length;
  }
}

TEST(Ring, WriterDoesNotTrustTheReader) {
  const auto ring = MakeRing();
  auto writer = RingWriter::Attach(ring);
  const std::string payload(2000, 'x');
  ASSERT_TRUE(*writer->TryWrite(1, 0, 0, AsBytes(payload)));
  ASSERT_TRUE(*writer->TryWrite(1, 0, 0, AsBytes(payload)));
  Word(*ring, kTailOffset).store(1 << 20);
  EXPECT_TRUE(absl::IsDataLoss(writer->TryWrite(1, 0, 0, AsBytes(payload)).status()));
  EXPECT_TRUE(absl::IsDataLoss(RingWriter::Attach(ring).status()));
  EXPECT_TRUE(absl::IsDataLoss(RingReader::Attach(ring).status()));
}

TEST(RingMessage, CarriesProtobufAndRefusesOthers) {
  const auto ring = MakeRing();
  auto writer = RingWriter::Attach(ring);
  auto reader = RingReader::Attach(ring);
  proto::WorkerOrder order;
  order.set_sequence(42);
  order.mutable_run()->set_digest("abc");
  ASSERT_TRUE(WriteMessage(*writer, 1, 42, order, kLong).ok());
  RingRecord record;
  ASSERT_TRUE(*reader->TryRead(record));
  proto::WorkerOrder read;
  ASSERT_TRUE(ParseMessage(record, read).ok());
  EXPECT_EQ(read.run().digest(), "abc");
  record.payload = "\xff\xff\xff";
  EXPECT_TRUE(absl::IsDataLoss(ParseMessage(record, read)));
  order.mutable_run()->set_digest(std::string(4000, 'x'));
  EXPECT_TRUE(absl::IsInvalidArgument(WriteMessage(*writer, 1, 43, order, kLong)));
}

}  // namespace
}  // namespace troupe::transport
