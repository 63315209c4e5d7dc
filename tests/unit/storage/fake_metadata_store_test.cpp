// The controls that only the fake store has.
#include "storage/fake_metadata_store.hpp"

#include <gtest/gtest.h>

namespace troupe::storage {
namespace {

Batch One(const std::string& key) {
  Batch batch;
  batch.Put(Table::kRuns, key, "v");
  return batch;
}

struct Answers {
  std::vector<absl::Status> statuses;
  MetadataStore::CommitDone Next() {
    return [this](absl::Status status) { statuses.push_back(std::move(status)); };
  }
};

TEST(FakeMetadataStore, HeldCommitsAreNeitherVisibleNorAnswered) {
  FakeMetadataStore store;
  Answers answers;
  store.Hold();
  store.Commit(One("a"), answers.Next());
  store.Commit(One("b"), answers.Next());
  EXPECT_EQ(store.held(), 2u);
  EXPECT_TRUE(answers.statuses.empty());
  EXPECT_FALSE(store.Get(Table::kRuns, "a").ok());
  EXPECT_TRUE(store.CompleteNext());
  EXPECT_EQ(answers.statuses.size(), 1u);
  EXPECT_TRUE(store.Get(Table::kRuns, "a").ok());
  EXPECT_FALSE(store.Get(Table::kRuns, "b").ok());
  store.Release();
  EXPECT_EQ(answers.statuses.size(), 2u);
  store.Commit(One("c"), answers.Next());
  EXPECT_EQ(answers.statuses.size(), 3u);
  EXPECT_EQ(store.commits(), 3u);
  EXPECT_FALSE(store.CompleteNext());
}

TEST(FakeMetadataStore, FailsAsToldAndChangesNothing) {
  FakeMetadataStore store;
  Answers answers;
  store.FailNext(absl::UnavailableError("disk gone"), 2);
  for (const char* key : {"a", "b", "c"}) store.Commit(One(key), answers.Next());
  EXPECT_EQ(answers.statuses[0].message(), "disk gone");
  EXPECT_FALSE(answers.statuses[1].ok());
  EXPECT_TRUE(answers.statuses[2].ok());
  EXPECT_FALSE(store.Get(Table::kRuns, "a").ok());
  EXPECT_TRUE(store.Get(Table::kRuns, "c").ok());
}

TEST(FakeMetadataStore, ACrashForgetsWhatWasNotAcknowledged) {
  FakeMetadataStore store;
  Answers answers;
  store.Commit(One("kept"), answers.Next());
  store.Hold();
  store.Commit(One("lost"), answers.Next());
  store.Crash();
  EXPECT_EQ(answers.statuses.size(), 1u);
  EXPECT_TRUE(store.Get(Table::kRuns, "kept").ok());
  EXPECT_FALSE(store.Get(Table::kRuns, "lost").ok());
}

TEST(FakeMetadataStore, AFullQueueRefuses) {
  FakeMetadataStore store(1);
  Answers answers;
  store.Hold();
  store.Commit(One("a"), answers.Next());
  store.Commit(One("b"), answers.Next());
  ASSERT_EQ(answers.statuses.size(), 1u);
  EXPECT_TRUE(absl::IsResourceExhausted(answers.statuses[0]));
}

}  // namespace
}  // namespace troupe::storage
