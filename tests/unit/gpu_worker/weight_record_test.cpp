// The record of what lies on a device, also when the worker that wrote it has written nonsense.
#include "gpu/worker/weight_record.hpp"

#include <unistd.h>

#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/random.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace troupe::gpu {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class WeightRecordTest : public testing::Test {
 protected:
  WeightRecordTest() : memory_(*transport::MemoryFile::Create("device", MiB(1) + WeightRecord::Size())) {}

  // As the next worker opens it.
  std::unique_ptr<WeightRecord> Open() {
    return *WeightRecord::Open(transport::UniqueFd(dup(memory_.fd())), WeightRecord::Size());
  }
  std::vector<std::string> Digests(WeightRecord& record) {
    dropped_.clear();
    std::vector<std::string> digests;
    for (const RecordedWeights& weights : record.Read(dropped_)) digests.push_back(weights.digest);
    return digests;
  }
  // The bytes of the record, which a dying worker may have written anything to.
  [[nodiscard]] std::span<std::byte> Page() const { return memory_.bytes().subspan(MiB(1).count()); }
  // Where the text lies in it.
  [[nodiscard]] std::byte* Find(const std::string& text) const {
    const auto page = Page();
    void* found = memmem(page.data(), page.size(), text.data(), text.size());
    EXPECT_NE(found, nullptr) << text;
    return static_cast<std::byte*>(found);
  }

  transport::MemoryFile memory_;
  std::vector<std::string> dropped_;
};

TEST_F(WeightRecordTest, WhatWasSetIsReadByTheNextWorker) {
  auto first = Open();
  EXPECT_THAT(Digests(*first), IsEmpty());
  EXPECT_THAT(dropped_, IsEmpty()) << "new memory is no damage";
  first->Set({"a", 0, KiB(64)});
  first->Set({"b", 65536, Bytes(1)});
  first->Set({"c", 131072, Bytes(0)});
  first->Set({"a", 262144, KiB(64)});  // it has moved
  first->Remove("b");
  first->Remove("never-there");
  auto second = Open();
  const auto read = second->Read(dropped_);
  ASSERT_THAT(read, SizeIs(2));
  for (const RecordedWeights& weights : read) {
    EXPECT_EQ(weights.offset, weights.digest == "a" ? 262144u : 131072u);
    EXPECT_EQ(weights.size, weights.digest == "a" ? KiB(64) : Bytes(0));
  }
  second->Remove("a");
  EXPECT_THAT(Digests(*Open()), ElementsAre("c")) << "what was read stays on record until it is removed";
  EXPECT_THAT(dropped_, IsEmpty());
}

TEST_F(WeightRecordTest, AsManyModelsAsItHoldsAndNoMore) {
  auto record = Open();
  EXPECT_THAT(Digests(*record), IsEmpty());
  for (std::size_t i = 0; i < WeightRecord::kModels + 10; ++i)
    record->Set({absl::StrCat("model-", i), i * 256, Bytes(256)});
  record->Set({std::string(WeightRecord::kLongestDigest + 1, 'x'), 0, Bytes(1)});
  record->Remove("model-0");
  record->Set({"in-its-place", 0, Bytes(1)});
  auto next = Open();
  const auto digests = Digests(*next);
  EXPECT_THAT(digests, SizeIs(WeightRecord::kModels));
  EXPECT_EQ(std::set<std::string>(digests.begin(), digests.end()).count("in-its-place"), 1u);
}

TEST_F(WeightRecordTest, ADigestThatIsNoneIsDroppedAndTheOthersStay) {
  auto record = Open();
  EXPECT_THAT(Digests(*record), IsEmpty());
  record->Set({"first", 0, Bytes(1)});
  record->Set({"second", 256, Bytes(1)});
  *Find("second") = std::byte{7};
  EXPECT_THAT(Digests(*Open()), ElementsAre("first"));
  EXPECT_THAT(dropped_, ElementsAre(HasSubstr("printable characters")));
  EXPECT_THAT(Digests(*Open()), ElementsAre("first"));
  EXPECT_THAT(dropped_, IsEmpty()) << "it was removed";
}

TEST_F(WeightRecordTest, ALengthThatLeavesItsPlaceIsDropped) {
  auto record = Open();
  EXPECT_THAT(Digests(*record), IsEmpty());
  record->Set({"first", 0, Bytes(1)});
  // The length stands before the offset and the size, which stand before the digest.
  const std::uint32_t length = 1u << 30;
  std::memcpy(Find("first") - 20, &length, sizeof(length));
  EXPECT_THAT(Digests(*Open()), IsEmpty());
  EXPECT_THAT(dropped_, ElementsAre(HasSubstr("the record says 1073741824")));
}

TEST_F(WeightRecordTest, AModelThatIsOnRecordTwiceIsReadOnce) {
  auto record = Open();
  EXPECT_THAT(Digests(*record), IsEmpty());
  record->Set({"one", 0, Bytes(1)});
  record->Set({"two", 256, Bytes(1)});
  std::memcpy(Find("two"), "one", 3);
  EXPECT_THAT(Digests(*Open()), ElementsAre("one"));
  EXPECT_THAT(dropped_, ElementsAre(HasSubstr("on record twice")));
}

TEST_F(WeightRecordTest, ARecordOfAnotherBuildIsBegunAnew) {
  auto record = Open();
  EXPECT_THAT(Digests(*record), IsEmpty());
  record->Set({"one", 0, Bytes(1)});
  Page()[0] ^= std::byte{1};
  EXPECT_THAT(Digests(*Open()), IsEmpty());
  EXPECT_THAT(dropped_, ElementsAre(HasSubstr("damaged, or of another build")));
  EXPECT_THAT(Digests(*Open()), IsEmpty());
  EXPECT_THAT(dropped_, IsEmpty());
  EXPECT_FALSE(WeightRecord::Open(transport::UniqueFd(dup(memory_.fd())), KiB(4)).ok()) << "another size";
  const auto small = *transport::MemoryFile::Create("small", WeightRecord::Size());
  EXPECT_FALSE(WeightRecord::Open(transport::UniqueFd(dup(small.fd())), WeightRecord::Size()).ok());
}

// Whatever stands there, reading ends, and what it gives has digests that orders may name.
TEST_F(WeightRecordTest, AnyBytesAreReadWithoutHarm) {
  Random random(7);
  auto record = Open();
  EXPECT_THAT(Digests(*record), IsEmpty());
  for (int round = 0; round < 50; ++round) {
    for (std::size_t at = 8; at < Page().size(); ++at) Page()[at] = static_cast<std::byte>(random.Below(256));
    for (const std::string& digest : Digests(*Open())) {
      EXPECT_LE(digest.size(), WeightRecord::kLongestDigest);
      for (const char c : digest) EXPECT_TRUE(c > ' ' && c <= '~');
    }
  }
}

}  // namespace
}  // namespace troupe::gpu
