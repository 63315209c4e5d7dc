// The power fails at any moment: what was not synced is there, is gone, or is torn. Nothing that was
// acknowledged is lost, and the stores open by themselves.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/digest.hpp"
#include "storage/disk_model_repository.hpp"
#include "tests/draws.hpp"
#include "tests/unit/storage/power.hpp"
#include "tests/unit/storage/stores.hpp"

namespace troupe::storage {
namespace {

constexpr int kSeeds = test::Draws(4);
constexpr double kKept[] = {0.0, 0.1, 0.5, 0.9, 1.0};

// A test's disk; `check` looks at what a power failure leaves of it, at one of `every` moments.
class PowerFailure : public testing::TestWithParam<int> {
 protected:
  using Check = std::function<void(const std::string& left)>;
  void Begin(std::uint64_t every, Check check) {
    std::filesystem::create_directory(disk());
    check_ = std::move(check);
    power_ = std::make_unique<Power>(disk(), [this, every] {
      if (!HasFailure() && chance_.Below(every) == 0) Fail();
    });
  }
  void Fail() {
    const std::lock_guard lock(mutex_);
    const double kept = kKept[chance_.Below(std::size(kKept))];
    SCOPED_TRACE(testing::Message() << "failure " << ++failures_ << ", kept " << kept);
    const std::string left = directory_ / "left";
    power_->Leave(left, chance_, kept);
    check_(left);
    std::filesystem::remove_all(left);
  }
  void End() {
    power_.reset();
    EXPECT_TRUE(HasFailure() || failures_ > 5) << failures_;
  }
  [[nodiscard]] std::string disk() const { return directory_ / "disk"; }

  Random random_{static_cast<std::uint64_t>(GetParam())};
  std::mutex mutex_;  // for what `check` reads: RocksDB has threads of its own, which sync, too

 private:
  Random chance_ = random_.Fork();
  TemporaryDirectory directory_;
  Check check_;
  std::unique_ptr<Power> power_;
  int failures_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Seeds, PowerFailure, testing::Range(1, kSeeds + 1));

// Values from one record to several blocks of the log; the store is closed and opened in between.
TEST_P(PowerFailure, LeavesEveryAcknowledgedCommit) {
  std::map<std::string, std::string> acknowledged;
  std::pair<std::string, std::string> under_way;  // its key may have the value before, or this one
  Begin(8, [&](const std::string& left) {
    const auto store = RocksMetadataStore::Open(left + "/store");
    ASSERT_TRUE(store.ok()) << store.status();
    for (const auto& [key, value] : acknowledged) {
      const auto got = (*store)->Get(Table::kRuns, key);
      ASSERT_TRUE(got.ok()) << key << ": " << got.status();
      ASSERT_TRUE(*got == value || under_way == std::pair(key, *got)) << key;
    }
    EXPECT_TRUE(PutOne(**store, "after", "v").ok());
  });
  for (int opening = 0; opening < 3 && !HasFailure(); ++opening) {
    const auto store = MustOpen(disk() + "/store");
    for (int i = 0; i < 12 && !HasFailure(); ++i) {
      const std::string key = std::to_string(random_.Below(30));
      std::string value(random_.Below(4) == 0 ? random_.Below(100'000) : random_.Below(1'000), 'v');
      for (char& each : value) each = static_cast<char>('a' + random_.Below(26));
      {
        const std::lock_guard lock(mutex_);
        under_way = {key, value};
      }
      ASSERT_TRUE(PutOne(*store, key, value).ok());
      const std::lock_guard lock(mutex_);
      acknowledged[key] = value;
    }
  }
  End();
}

TEST_P(PowerFailure, LeavesEveryAcknowledgedObject) {
  std::vector<std::string> acknowledged;
  Begin(6, [&](const std::string& left) {
    const auto repository = DiskModelRepository::At(left + "/models");
    ASSERT_TRUE(repository.ok()) << repository.status();
    for (const auto& digest : acknowledged)
      ASSERT_TRUE((*repository)->Open(digest).ok()) << digest << " was acknowledged";
  });
  for (int opening = 0; opening < 2 && !HasFailure(); ++opening) {
    auto repository = DiskModelRepository::At(disk() + "/models");
    ASSERT_TRUE(repository.ok()) << repository.status();
    for (int i = 0; i < 8 && !HasFailure(); ++i) {
      const std::string text(random_.Below(20'000), static_cast<char>('a' + random_.Below(26)));
      const auto digest = (*repository)->Put(std::as_bytes(std::span(text)));
      ASSERT_TRUE(digest.ok()) << digest.status();
      const std::lock_guard lock(mutex_);
      acknowledged.push_back(*digest);
    }
  }
  End();
}

// What shows that the disk is one: a rename before its file is synced may leave an empty file.
TEST_P(PowerFailure, LeavesNothingThatWasNotSynced) {
  bool torn = false;
  Begin(1, [&](const std::string& left) { torn = torn || ReadAll(left + "/file") != "the whole text"; });
  WriteFile(disk() + "/file", "the whole text");
  for (int i = 0; i < 20; ++i) Fail();
  EXPECT_TRUE(torn);
  End();
}

}  // namespace
}  // namespace troupe::storage
