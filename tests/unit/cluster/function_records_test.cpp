// Records of functions of which most are folded: nothing but their memory tells them from open ones.
#include "cluster/function_records.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/random.hpp"
#include "cluster/copies/digest_key.hpp"
#include "cluster/function_table.hpp"
#include "tests/unit/cluster/records.hpp"

namespace troupe::cluster::function_records_test {
namespace {

using testing::ElementsAre;

proto::FunctionRecord RecordOf(const std::string& name, std::uint64_t version) {
  auto record = FunctionOf(name);
  record.mutable_key()->set_version(absl::StrCat(version));
  return record;
}

void Put(FunctionRecords& records, const std::string& name, std::uint64_t version = 1) {
  records.Of(name)[version] = RecordOf(name, version);
}

// "name/version" of each record, in the order in which they are shown.
std::vector<std::string> AllOf(const FunctionRecords& records) {
  std::vector<std::string> all;
  records.ForEach([&](const proto::FunctionRecord& record) {
    all.push_back(absl::StrCat(record.key().name(), "/", record.key().version()));
  });
  return all;
}

TEST(FunctionRecords, ThoseThatWereOpenedFirstAreFolded) {
  FunctionRecords records(2);
  for (const char* name : {"b", "d", "a", "c"}) Put(records, name);
  Put(records, "b", 12);
  EXPECT_EQ(records.folded(), 0u) << "nothing is folded before it is said that nothing is used";
  records.FoldCold();
  EXPECT_EQ(records.folded(), 2u);
  EXPECT_THAT(AllOf(records), ElementsAre("a/1", "b/1", "b/12", "c/1", "d/1"));
  EXPECT_EQ(records.folded(), 2u) << "what is only shown stays folded";
  const auto* versions = records.Find("b");
  ASSERT_NE(versions, nullptr);
  EXPECT_EQ(versions->rbegin()->first, 12u)
      << "versions are in the order of their numbers, not of their texts";
  EXPECT_EQ(records.folded(), 1u);
  const auto* other = records.Find("d");
  ASSERT_NE(other, nullptr);
  EXPECT_EQ(records.Find("b"), versions) << "what was found stays where it is";
  records.FoldCold();
  EXPECT_EQ(records.folded(), 2u) << "a and c are folded now";
  EXPECT_EQ(records.Find("b"), versions);
  records.Erase("a");
  records.Erase("b");
  EXPECT_THAT(AllOf(records), ElementsAre("c/1", "d/1"));
  EXPECT_EQ(records.Find("a"), nullptr);
  EXPECT_EQ(records.Find("b"), nullptr);
}

TEST(FunctionRecords, WithoutABoundNothingIsFolded) {
  FunctionRecords records;
  for (int i = 0; i < 100; ++i) Put(records, absl::StrCat("f", i));
  records.FoldCold();
  EXPECT_EQ(records.folded(), 0u);
}

TEST(FunctionRecords, PartsAreAllRecordsOnce) {
  FunctionRecords records(3);
  for (int i = 10; i < 20; ++i) Put(records, absl::StrCat("f", i));
  Put(records, "f15", 2);
  records.FoldCold();
  const auto one = RecordOf("f10", 1).ByteSizeLong();
  for (const std::size_t bytes : {std::size_t{1}, one, 3 * one, 100 * one}) {
    proto::ClusterUpdate whole;
    std::string after;
    int parts = 0;
    do {
      proto::ClusterUpdate part;
      after = records.AddTo(part, after, bytes);
      EXPECT_GT(part.functions_size(), 0);
      EXPECT_LE(part.ByteSizeLong(), bytes + 3 * one) << "a part ends with the function that fills it";
      whole.MergeFrom(part);
      ++parts;
    } while (!after.empty());
    EXPECT_EQ(whole.functions_size(), 11) << bytes;
    EXPECT_EQ(parts, bytes <= one ? 10 : bytes == 3 * one ? 4 : 1) << bytes;
  }
  proto::ClusterUpdate none;
  EXPECT_EQ(records.AddTo(none, "f19", 1), "");
  EXPECT_EQ(none.functions_size(), 0);
}

TEST(FunctionRecords, ATableThatFoldsIsAsOneThatDoesNot) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    Random random(seed);
    FunctionTable open, folds(random.Below(4));
    for (int step = 0; step < 300; ++step) {
      auto record = RecordOf(absl::StrCat("f", random.Below(12)), 1 + random.Below(3));
      record.set_loaded(random.Below(3) != 0);
      record.set_share_percent(random.Below(3) == 0 ? 50 : 0);
      record.set_model_digest(Sha256Hex(absl::StrCat("model ", random.Below(6))));
      if (random.Below(3) == 0) {
        ASSERT_EQ(open.Remove(record.key()), folds.Remove(record.key()));
      } else {
        open.Put(record);
        folds.Put(record);
      }
      if (random.Below(3) == 0) folds.FoldCold();
      proto::FunctionKey key;
      key.set_name(absl::StrCat("f", random.Below(12)));
      const auto* expected = open.Find(key);
      const auto* found = folds.Find(key);
      const auto text = [](const auto* record) {
        return record == nullptr ? "" : record->ShortDebugString();
      };
      ASSERT_EQ(text(expected), text(found));
      ASSERT_EQ(open.FindServed(key).status(), folds.FindServed(key).status());
      ASSERT_EQ(open.size(), folds.size());
      const auto digest = Sha256Hex(absl::StrCat("model ", random.Below(6)));
      std::vector<std::string> users;
      for (const auto* table : {&open, &folds})
        table->ShowLoadedUserOf(digest, [&](const auto& user) { users.push_back(user.ShortDebugString()); });
      ASSERT_EQ(users.size() % 2, 0u) << "a model has one user that is shown, or none";
      ASSERT_TRUE(users.empty() || users.front() == users.back());
    }
    std::vector<std::string> all, of_folded;
    open.ForEach([&](const auto& record) { all.push_back(record.ShortDebugString()); });
    folds.ForEach([&](const auto& record) { of_folded.push_back(record.ShortDebugString()); });
    ASSERT_EQ(all, of_folded) << "seed " << seed;
  }
}

TEST(DigestKey, ItIsTheTextInHalfTheBytes) {
  const auto first = Sha256Hex("1");
  const auto second = Sha256Hex("2");
  EXPECT_EQ(DigestKey::Of(first)->Text(), first);
  EXPECT_EQ(DigestKey::Of(first) < DigestKey::Of(second), first < second);
  EXPECT_EQ(DigestKey::Of(std::string(62, '0') + "9a")->Text(), std::string(62, '0') + "9a");
  EXPECT_EQ(sizeof(DigestKey), 32u);
  for (const auto& text : {std::string(), std::string("model"), first + "0", first.substr(1),
                           std::string(64, 'A'), std::string(64, 'g')})
    EXPECT_FALSE(DigestKey::Of(text).has_value()) << text;
}

}  // namespace
}  // namespace troupe::cluster::function_records_test
