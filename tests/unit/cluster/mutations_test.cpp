#include "cluster/records/mutations.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <set>
#include <string>
#include <utility>

namespace troupe::cluster {
namespace {

// Acknowledges what is committed at once, or when it is told to.
class Store {
 public:
  void Commit(Changes changes, std::function<void(absl::Status)> done) {
    waiting_.push_back({std::move(changes), std::move(done)});
    if (!holds_) CompleteNext();
  }
  void Hold() { holds_ = true; }
  void Release() {
    holds_ = false;
    while (CompleteNext()) {
    }
  }
  bool CompleteNext() {
    if (waiting_.empty()) return false;
    auto [changes, done] = std::move(waiting_.front());
    waiting_.pop_front();
    auto status = std::exchange(failure_, absl::OkStatus());
    for (const auto& change : changes.all())
      if (status.ok()) keys_.insert(change.key);
    done(std::move(status));
    return true;
  }
  void FailNext(absl::Status status) { failure_ = std::move(status); }
  [[nodiscard]] bool Has(const std::string& key) const { return keys_.contains(key); }

 private:
  bool holds_ = false;
  absl::Status failure_;
  std::deque<std::pair<Changes, std::function<void(absl::Status)>>> waiting_;
  std::set<std::string> keys_;
};

class MutationsTest : public ::testing::Test {
 protected:
  Mutations::Mutation Named(const std::string& name) {
    return {[this, name]() -> absl::StatusOr<Changes> {
              trace_ += "prepare " + name + ", ";
              Changes changes;
              changes.Put(Table::kSettings, name, "1");
              return changes;
            },
            [this, name] { trace_ += "apply " + name + ", "; },
            [this, name](const absl::Status& status) {
              trace_ += (status.ok() ? "ok " : absl::StatusCodeToString(status.code()) + " ") + name + ", ";
            }};
  }
  std::string Take() { return std::exchange(trace_, std::string()); }

  std::string trace_;
  Store store_;
  Mutations mutations_{[this](Changes changes, std::function<void(absl::Status)> done) {
                         store_.Commit(std::move(changes), std::move(done));
                       },
                       3};
};

TEST_F(MutationsTest, TheSecondIsValidatedAfterTheFirstIsApplied) {
  store_.Hold();
  mutations_.Add(Named("a"));
  mutations_.Add(Named("b"));
  EXPECT_EQ(Take(), "prepare a, ");
  ASSERT_TRUE(store_.CompleteNext());
  EXPECT_EQ(Take(), "apply a, ok a, prepare b, ");
  ASSERT_TRUE(store_.CompleteNext());
  EXPECT_EQ(Take(), "apply b, ok b, ");
  EXPECT_FALSE(store_.CompleteNext());
}

TEST_F(MutationsTest, WhatIsNotStoredIsNotApplied) {
  store_.FailNext(absl::ResourceExhaustedError("disk full"));
  mutations_.Add(Named("a"));
  EXPECT_EQ(Take(), "prepare a, RESOURCE_EXHAUSTED a, ");
  auto refused = Named("b");
  refused.prepare = []() -> absl::StatusOr<Changes> { return absl::NotFoundError("no b"); };
  mutations_.Add(std::move(refused));
  mutations_.Add(Named("c"));
  EXPECT_EQ(Take(), "NOT_FOUND b, prepare c, apply c, ok c, ");
  EXPECT_FALSE(store_.Has("a"));
}

TEST_F(MutationsTest, AnAnswerMayAddAnother) {
  auto first = Named("a");
  first.answer = [this](const absl::Status&) {
    trace_ += "answer a, ";
    mutations_.Add(Named("b"));
    trace_ += "added b, ";
  };
  mutations_.Add(std::move(first));
  EXPECT_EQ(Take(), "prepare a, apply a, answer a, added b, prepare b, apply b, ok b, ");
}

TEST_F(MutationsTest, AFullQueueRefusesAndLosesNothing) {
  store_.Hold();
  for (const char* name : {"a", "b", "c", "d"}) mutations_.Add(Named(name));
  EXPECT_EQ(Take(), "prepare a, RESOURCE_EXHAUSTED d, ");
  store_.Release();
  EXPECT_EQ(Take(), "apply a, ok a, prepare b, apply b, ok b, prepare c, apply c, ok c, ");
}

TEST_F(MutationsTest, ALateAcknowledgementAfterClearDoesNothing) {
  store_.Hold();
  mutations_.Add(Named("a"));
  mutations_.Clear();
  Take();
  store_.Release();
  EXPECT_EQ(Take(), "");
}

}  // namespace
}  // namespace troupe::cluster
