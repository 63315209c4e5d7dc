// A metadata store in memory, for tests and the simulator. It keeps the contract of MetadataStore, and obeys:
// completions can be held back, and the next commits can be made to fail.
#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "storage/metadata_store.hpp"

namespace troupe::storage {

// Threads: any. By default a commit is applied, and `done` called, within Commit.
class FakeMetadataStore final : public MetadataStore {
 public:
  // `max_queued`: commits held back beyond this are refused, as by a full queue.
  explicit FakeMetadataStore(std::size_t max_queued = 4096) : max_queued_(max_queued) {}

  void Commit(Batch batch, CommitDone done) override;
  [[nodiscard]] absl::StatusOr<std::string> Get(Table table, std::string_view key) const override;
  [[nodiscard]] absl::Status Scan(Table table, std::string_view prefix,
                                  const ScanCallback& callback) const override;

  // From now on commits wait (neither visible nor answered) until CompleteNext or Release.
  void Hold();
  // Applies and answers the oldest held commit; false when there is none.
  bool CompleteNext();
  // Completes all that is held, and goes back to completing within Commit.
  void Release();
  // The process dies: held commits are forgotten and never answered. What was acknowledged stays.
  void Crash();
  // The next `count` commits that complete fail with `status` and change nothing.
  void FailNext(absl::Status status, std::size_t count = 1);
  [[nodiscard]] std::size_t held() const;
  [[nodiscard]] std::size_t commits() const;  // acknowledged so far

 private:
  void Complete(const Batch& batch, const CommitDone& done);

  const std::size_t max_queued_;
  mutable std::mutex mutex_;
  std::map<std::pair<Table, std::string>, std::string> records_;
  std::deque<std::pair<Batch, CommitDone>> held_;
  std::deque<absl::Status> failures_;
  bool hold_ = false;
  std::size_t commits_ = 0;
};

}  // namespace troupe::storage
