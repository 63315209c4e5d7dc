// What every MetadataStore promises; the tests run on each of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "proto/function.pb.h"
#include "proto/workflow.pb.h"
#include "storage/fake_metadata_store.hpp"
#include "storage/rocks_metadata_store.hpp"
#include "tests/unit/storage/files.hpp"

namespace troupe::storage {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Kind {
  const char* name;
  std::function<std::unique_ptr<MetadataStore>(const std::string& directory)> make;
};

class MetadataStoreContract : public testing::TestWithParam<Kind> {
 protected:
  TemporaryDirectory directory_;
  std::unique_ptr<MetadataStore> store_ = GetParam().make(directory_.path());

  void Put(Table table, const std::string& key, const std::string& value) {
    Batch batch;
    batch.Put(table, key, value);
    ASSERT_TRUE(CommitAndWait(*store_, std::move(batch)).ok());
  }
  std::vector<std::string> Keys(Table table, const std::string& prefix) {
    std::vector<std::string> keys;
    EXPECT_TRUE(store_
                    ->Scan(table, prefix,
                           [&](std::string_view key, std::string_view) {
                             keys.emplace_back(key);
                             return true;
                           })
                    .ok());
    return keys;
  }
};

TEST_P(MetadataStoreContract, ReadsWhatWasCommittedPerTable) {
  Put(Table::kFunctions, "a/1", "first");
  Put(Table::kRuns, "a/1", "other table");
  EXPECT_EQ(*store_->Get(Table::kFunctions, "a/1"), "first");
  EXPECT_EQ(*store_->Get(Table::kRuns, "a/1"), "other table");
  EXPECT_TRUE(absl::IsNotFound(store_->Get(Table::kSteps, "a/1").status()));
  EXPECT_THAT(std::string(store_->Get(Table::kSteps, "a/1").status().message()),
              HasSubstr("'a/1' in table steps"));
}

TEST_P(MetadataStoreContract, BatchesApplyInOrderAndTogether) {
  Batch batch;
  batch.Put(Table::kNodes, "n1", "old");
  batch.Put(Table::kNodes, "n2", "gone");
  batch.Put(Table::kNodes, "n1", "new");
  batch.Delete(Table::kNodes, "n2");
  batch.Delete(Table::kNodes, "never there");
  ASSERT_TRUE(CommitAndWait(*store_, std::move(batch)).ok());
  EXPECT_EQ(*store_->Get(Table::kNodes, "n1"), "new");
  EXPECT_TRUE(absl::IsNotFound(store_->Get(Table::kNodes, "n2").status()));
}

TEST_P(MetadataStoreContract, AnEmptyBatchIsAcknowledged) {
  EXPECT_TRUE(CommitAndWait(*store_, Batch()).ok());
}

TEST_P(MetadataStoreContract, ValuesMayBeEmptyBinaryAndLarge) {
  const std::string binary("\0\xff\0TR", 5);
  Put(Table::kSettings, "empty", "");
  Put(Table::kSettings, binary, binary);
  Put(Table::kSettings, "large", std::string(3 << 20, 'x'));
  EXPECT_EQ(*store_->Get(Table::kSettings, "empty"), "");
  EXPECT_EQ(*store_->Get(Table::kSettings, binary), binary);
  EXPECT_EQ(store_->Get(Table::kSettings, "large")->size(), 3u << 20);
}

TEST_P(MetadataStoreContract, ScansAPrefixInByteOrderAndStopsWhenTold) {
  for (const char* key : {"run-2/b", "run-10/a", "run-2/a", "run-3/a"}) Put(Table::kSteps, key, "v");
  EXPECT_THAT(Keys(Table::kSteps, "run-2/"), ElementsAre("run-2/a", "run-2/b"));
  EXPECT_THAT(Keys(Table::kSteps, ""), ElementsAre("run-10/a", "run-2/a", "run-2/b", "run-3/a"));
  EXPECT_THAT(Keys(Table::kSteps, "zz"), ElementsAre());
  int seen = 0;
  ASSERT_TRUE(store_->Scan(Table::kSteps, "", [&](auto, auto) { return ++seen < 2; }).ok());
  EXPECT_EQ(seen, 2);
}

TEST_P(MetadataStoreContract, SequenceKeysScanInTheOrderOfTheirNumbers) {
  for (const std::uint64_t n : {300ull, 2ull, 1ull << 40, 255ull, 256ull})
    Put(Table::kLog, SequenceKey(n), std::to_string(n));
  std::vector<std::string> values;
  ASSERT_TRUE(store_
                  ->Scan(Table::kLog, "",
                         [&](std::string_view, std::string_view value) {
                           values.emplace_back(value);
                           return true;
                         })
                  .ok());
  EXPECT_THAT(values, ElementsAre("2", "255", "256", "300", "1099511627776"));
}

TEST_P(MetadataStoreContract, CompletionsComeInTheOrderOfCommitsAndAfterTheyAreVisible) {
  std::mutex mutex;
  std::vector<int> order;
  std::atomic<int> invisible = 0;
  constexpr int kCommits = 200;
  for (int i = 0; i < kCommits; ++i) {
    Batch batch;
    const std::string key = "k" + std::to_string(i);
    batch.Put(Table::kRuns, key, "v");
    store_->Commit(std::move(batch), [&, i, key](const absl::Status& status) {
      if (!status.ok() || !store_->Get(Table::kRuns, key).ok()) ++invisible;
      const std::lock_guard lock(mutex);
      order.push_back(i);
    });
  }
  ASSERT_TRUE(CommitAndWait(*store_, Batch()).ok());
  const std::lock_guard lock(mutex);
  ASSERT_EQ(order.size(), static_cast<std::size_t>(kCommits));
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  EXPECT_EQ(invisible, 0);
}

TEST_P(MetadataStoreContract, ManyThreadsCommitAtOnceAndEachIsAnsweredOnce) {
  constexpr int kThreads = 4;
  constexpr int kEach = 50;
  std::atomic<int> answered = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        Batch batch;
        batch.Put(Table::kBlobs, std::to_string(t) + "-" + std::to_string(i), "v");
        store_->Commit(std::move(batch),
                       [&](const absl::Status& status) { answered += status.ok() ? 1 : 1000; });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(CommitAndWait(*store_, Batch()).ok());
  EXPECT_EQ(answered, kThreads * kEach);
  EXPECT_EQ(Keys(Table::kBlobs, "").size(), static_cast<std::size_t>(kThreads * kEach));
}

TEST_P(MetadataStoreContract, RefusesBadBatchesBeforeCommitReturns) {
  Batch no_key;
  no_key.Put(Table::kRuns, "fine", "v");
  no_key.Put(Table::kRuns, "", "v");
  Batch long_key;
  long_key.Delete(Table::kRuns, std::string(kMaxKeyBytes + 1, 'k'));
  Batch large;
  large.Put(Table::kRuns, "k", std::string(kMaxBatchBytes.count(), 'v'));
  for (Batch* batch : {&no_key, &long_key, &large}) {
    absl::Status status;
    store_->Commit(std::move(*batch), [&](absl::Status s) { status = std::move(s); });
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  }
  EXPECT_THAT(Keys(Table::kRuns, ""), ElementsAre());
}

TEST_P(MetadataStoreContract, MessagesRoundTripAndAForeignRecordIsDataLoss) {
  proto::FunctionRecord record;
  record.mutable_key()->set_name("digits");
  record.mutable_slo()->set_percentile(98);
  Batch batch;
  batch.Put(Table::kFunctions, "digits/1", record);
  batch.Put(Table::kFunctions, "odd", std::string("\xff\xff\xff"));
  ASSERT_TRUE(CommitAndWait(*store_, std::move(batch)).ok());
  const auto got = GetMessage<proto::FunctionRecord>(*store_, Table::kFunctions, "digits/1");
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->SerializeAsString(), record.SerializeAsString());

  std::vector<std::string> names;
  const auto keep = [&](std::string_view, proto::FunctionRecord each) { names.push_back(each.key().name()); };
  EXPECT_TRUE(ScanMessages<proto::FunctionRecord>(*store_, Table::kFunctions, "digits/", keep).ok());
  EXPECT_THAT(names, ElementsAre("digits"));
  const absl::Status all = ScanMessages<proto::FunctionRecord>(*store_, Table::kFunctions, "", keep);
  EXPECT_TRUE(absl::IsDataLoss(all));
  EXPECT_THAT(std::string(all.message()),
              HasSubstr("'odd' of table functions is not a valid troupe.proto.FunctionRecord"));
}

std::unique_ptr<MetadataStore> MakeRocks(const std::string& directory) {
  auto store = RocksMetadataStore::Open(directory);
  EXPECT_TRUE(store.ok()) << store.status();
  return store.ok() ? *std::move(store) : nullptr;
}

INSTANTIATE_TEST_SUITE_P(Stores, MetadataStoreContract,
                         testing::Values(Kind{"Rocks", MakeRocks},
                                         Kind{"Fake",
                                              [](const std::string&) -> std::unique_ptr<MetadataStore> {
                                                return std::make_unique<FakeMetadataStore>();
                                              }}),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace troupe::storage
