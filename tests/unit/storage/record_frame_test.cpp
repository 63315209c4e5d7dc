#include "storage/record_frame.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "storage/crc32c.hpp"

namespace troupe::storage {
namespace {

TEST(Crc32c, MatchesThePublishedVectors) {  // RFC 3720, B.4
  EXPECT_EQ(Crc32c(0, "123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(0, std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(0, std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(Crc32c(Crc32c(0, "12345"), "6789"), 0xe3069283u);
}

TEST(RecordFrame, RoundTrips) {
  for (const std::string& value : {std::string(), std::string("x"), std::string(100000, '\x7f')}) {
    const std::string record = FrameRecord(Table::kRuns, "key", value);
    EXPECT_EQ(record.size(), value.size() + kFrameBytes);
    EXPECT_EQ(*UnframeRecord(Table::kRuns, "key", record), value);
  }
}

TEST(RecordFrame, EveryFlippedBitIsSeen) {
  const std::string record = FrameRecord(Table::kRuns, "key", "some value");
  for (std::size_t bit = 0; bit < record.size() * 8; ++bit) {
    std::string damaged = record;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(UnframeRecord(Table::kRuns, "key", damaged).ok()) << "bit " << bit;
  }
}

TEST(RecordFrame, EveryTruncationAndAnyTailIsSeen) {
  const std::string record = FrameRecord(Table::kRuns, "key", "some value");
  for (std::size_t length = 0; length < record.size(); ++length) {
    EXPECT_TRUE(absl::IsDataLoss(UnframeRecord(Table::kRuns, "key", record.substr(0, length)).status()));
  }
  EXPECT_TRUE(absl::IsDataLoss(UnframeRecord(Table::kRuns, "key", record + "x").status()));
}

TEST(RecordFrame, ARecordUnderAnotherKeyOrTableIsSeen) {
  const std::string record = FrameRecord(Table::kRuns, "key", "value");
  EXPECT_TRUE(absl::IsDataLoss(UnframeRecord(Table::kRuns, "kez", record).status()));
  EXPECT_TRUE(absl::IsDataLoss(UnframeRecord(Table::kSteps, "key", record).status()));
  // The border between key and value is part of the checksum.
  EXPECT_FALSE(UnframeRecord(Table::kRuns, "keyv", FrameRecord(Table::kRuns, "key", "value")).ok());
}

TEST(RecordFrame, ANewerFormatIsNotCalledDamage) {
  std::string record = FrameRecord(Table::kRuns, "key", "value");
  record[2] = 2;
  const absl::Status status = UnframeRecord(Table::kRuns, "key", record).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("newer release"));
}

}  // namespace
}  // namespace troupe::storage
