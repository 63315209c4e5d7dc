// The mark of the last acknowledged commit: kept, cut short, damaged, or of another store.
#include "storage/commit_mark.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/storage/files.hpp"

namespace troupe::storage {
namespace {

TEST(CommitMark, IsWhatWasWrittenLast) {
  TemporaryDirectory directory;
  EXPECT_TRUE(absl::IsNotFound(CommitMark::Read(directory / "MARK").status()));
  auto mark = CommitMark::Write(directory / "MARK", {7, 99});
  ASSERT_TRUE(mark.ok()) << mark.status();
  EXPECT_EQ(CommitMark::Read(directory / "MARK")->sequence, 7u);
  for (std::uint64_t sequence = 8; sequence < 20; ++sequence) {
    ASSERT_TRUE(mark->Advance(sequence).ok());
    const auto read = CommitMark::Read(directory / "MARK");
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->sequence, sequence);
    EXPECT_EQ(read->database, 99u);
  }
  ASSERT_TRUE(CommitMark::Write(directory / "MARK", {3, 98}).ok());  // the mark of a store that was restored
  EXPECT_EQ(CommitMark::Read(directory / "MARK")->sequence, 3u);
}

TEST(CommitMark, OneDamagedCopyLeavesTheOther) {
  TemporaryDirectory directory;
  auto mark = CommitMark::Write(directory / "MARK", {7, 99});
  ASSERT_TRUE(mark->Advance(8).ok());
  const std::string whole = ReadAll(directory / "MARK");
  ASSERT_EQ(whole.size(), 1024u);
  for (std::size_t at = 0; at < 40; ++at) {
    std::string first = whole, second = whole;
    first[at] ^= 1;
    second[512 + at] ^= 1;
    WriteFile(directory / "MARK", first);  // the newer mark
    EXPECT_EQ(CommitMark::Read(directory / "MARK")->sequence, 7u) << at;
    WriteFile(directory / "MARK", second);
    EXPECT_EQ(CommitMark::Read(directory / "MARK")->sequence, 8u) << at;
  }
}

TEST(CommitMark, NoReadableCopyIsALossAndNoFreshStart) {
  TemporaryDirectory directory;
  for (const std::string& text :
       {std::string(), std::string(1024, '\0'), std::string(1024, 'x'), std::string(20, 'x')}) {
    WriteFile(directory / "MARK", text);
    EXPECT_TRUE(absl::IsDataLoss(CommitMark::Read(directory / "MARK").status())) << text.size();
  }
  WriteFile(directory / "MARK", std::string(4096, 'x'));
  EXPECT_FALSE(CommitMark::Read(directory / "MARK").ok());
}

}  // namespace
}  // namespace troupe::storage
