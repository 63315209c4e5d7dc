#include "storage/group_committer.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

namespace troupe::storage {
namespace {

Batch Sized(std::size_t bytes) {
  Batch batch;
  batch.Put(Table::kRuns, "k", std::string(bytes - 1, 'v'));
  return batch;
}

// A writer that waits at a gate and reports the sizes of its groups.
struct GatedWriter {
  std::promise<void> entered;
  std::promise<void> gate;
  std::vector<std::size_t> groups;
  absl::Status status;

  GroupCommitter::Write Write() {
    return [this](std::span<const GroupCommitter::Waiting> group) {
      groups.push_back(group.size());
      if (groups.size() == 1) {
        entered.set_value();
        gate.get_future().wait();
      }
      return status;
    };
  }
};

TEST(GroupCommitter, WhatWaitsDuringAWriteBecomesOneGroup) {
  GatedWriter writer;
  std::atomic<int> done = 0;
  {
    GroupCommitter committer({100, MiB(1), 100, MiB(1)}, writer.Write());
    committer.Push(Sized(8), [&](const absl::Status&) { ++done; });
    writer.entered.get_future().wait();
    for (int i = 0; i < 10; ++i) committer.Push(Sized(8), [&](const absl::Status&) { ++done; });
    EXPECT_EQ(done, 0);
    writer.gate.set_value();
  }
  EXPECT_EQ(done, 11);
  EXPECT_EQ(writer.groups, (std::vector<std::size_t>{1, 10}));
}

TEST(GroupCommitter, GroupsAreBoundedInBatchesAndBytes) {
  for (const auto& limits : {GroupCommitter::Limits{100, MiB(1), 4, MiB(1)},
                             GroupCommitter::Limits{100, MiB(1), 100, Bytes(4 * 8)}}) {
    GatedWriter writer;
    {
      GroupCommitter committer(limits, writer.Write());
      committer.Push(Sized(8), [](const absl::Status&) {});
      writer.entered.get_future().wait();
      for (int i = 0; i < 10; ++i) committer.Push(Sized(8), [](const absl::Status&) {});
      writer.gate.set_value();
    }
    EXPECT_EQ(writer.groups, (std::vector<std::size_t>{1, 4, 4, 2}));
  }
}

TEST(GroupCommitter, AFullQueueRefusesAtOnceAndForgetsNoCaller) {
  for (const auto& limits : {GroupCommitter::Limits{3, MiB(1), 100, MiB(1)},
                             GroupCommitter::Limits{100, Bytes(24), 100, MiB(1)}}) {
    GatedWriter writer;
    int refused = 0;
    std::atomic<int> accepted = 0;
    {
      GroupCommitter committer(limits, writer.Write());
      committer.Push(Sized(8), [&](const absl::Status&) { ++accepted; });
      writer.entered.get_future().wait();
      for (int i = 0; i < 5; ++i) {
        committer.Push(Sized(8), [&](const absl::Status& status) {
          if (absl::IsResourceExhausted(status)) {
            ++refused;
          } else {
            ++accepted;
          }
        });
      }
      EXPECT_EQ(refused, 2);
      writer.gate.set_value();
    }
    EXPECT_EQ(accepted, 4);
  }
}

TEST(GroupCommitter, AFailedGroupFailsEveryBatchInIt) {
  GatedWriter writer;
  writer.status = absl::UnavailableError("no disk");
  std::atomic<int> failed = 0;
  {
    GroupCommitter committer({100, MiB(1), 100, MiB(1)}, writer.Write());
    committer.Push(Sized(8), [&](const absl::Status& status) { failed += status.message() == "no disk"; });
    writer.entered.get_future().wait();
    for (int i = 0; i < 4; ++i) {
      committer.Push(Sized(8), [&](const absl::Status& status) { failed += status.message() == "no disk"; });
    }
    writer.gate.set_value();
  }
  EXPECT_EQ(failed, 5);
}

}  // namespace
}  // namespace troupe::storage
