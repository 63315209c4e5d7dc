// SIMULATED DISK: the manager's metadata on a disk that takes its time, under virtual time, and that fails as
// disks do: slow, a sync that fails (and it is unknown whether the record is there), a crash in the middle
// (what was on its way is there as far as it came; the record that was being written is torn, and gone). What
// lies on it outlives its manager.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "base/random.hpp"
#include "base/units.hpp"
#include "storage/fake_metadata_store.hpp"

namespace troupe::sim {

class SimulatedDisk final : public storage::MetadataStore {
 public:
  struct Events {
    std::function<Time()> now;
    std::function<void(Time when, std::function<void()>)> at;
    // Each batch that comes to lie on the disk, and whether its writer is told so.
    std::function<void(const storage::Batch&, bool acknowledged)> written;
  };
  SimulatedDisk(Events events, Random random) : events_(std::move(events)), random_(random) {}

  void Commit(storage::Batch batch, CommitDone done) override;
  [[nodiscard]] absl::StatusOr<std::string> Get(storage::Table table, std::string_view key) const override {
    return records_.Get(table, key);
  }
  [[nodiscard]] absl::Status Scan(storage::Table table, std::string_view prefix,
                                  const ScanCallback& callback) const override {
    return records_.Scan(table, prefix, callback);
  }

  // A commit takes so long from now on.
  void SetLatency(Duration latency) { latency_ = latency; }
  // So many of the next commits fail, one after the other.
  void FailSyncs(std::uint32_t count) { failing_ += count; }
  // Once: after the next commit was asked for, and before it is done.
  void WhenAsked(std::function<void()> then) { when_asked_ = std::move(then); }
  // As fast as it was, and no commit fails any more.
  void Mend() {
    latency_ = kLatency;
    failing_ = 0;
    when_asked_ = nullptr;
  }
  // Its manager dies. True: a record was torn.
  bool Crash();
  // A planted error: the first record of `table` from now on is acknowledged and not kept.
  void DropOne(storage::Table table) { planted_.drop = table; }
  [[nodiscard]] bool dropped() const { return planted_.dropped; }
  [[nodiscard]] std::size_t waiting() const { return waiting_.size(); }
  [[nodiscard]] std::uint64_t failed() const { return failed_; }
  [[nodiscard]] std::uint64_t slow() const { return slow_; }  // commits that took longer than a disk should

  static constexpr Duration kLatency = std::chrono::microseconds(800);

 private:
  struct Waiting {
    storage::Batch batch;
    CommitDone done;
  };
  struct PlantedError {
    std::optional<storage::Table> drop;
    bool dropped = false;
  };
  void CompleteNext();
  void Keep(const storage::Batch& batch, bool acknowledged);

  const Events events_;
  Random random_;
  storage::FakeMetadataStore records_;
  std::deque<Waiting> waiting_;
  Duration latency_ = kLatency;
  Time last_{};             // commits complete in their order
  std::uint64_t life_ = 0;  // of the manager: what an earlier manager asked for is dropped
  std::uint32_t failing_ = 0;
  std::uint64_t failed_ = 0, slow_ = 0;
  std::function<void()> when_asked_;
  PlantedError planted_;
};

}  // namespace troupe::sim
