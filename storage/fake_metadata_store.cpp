#include "storage/fake_metadata_store.hpp"

#include <vector>

namespace troupe::storage {

void FakeMetadataStore::Commit(Batch batch, CommitDone done) {
  if (absl::Status valid = ValidateBatch(batch); !valid.ok()) return done(std::move(valid));
  bool refused = false;
  {
    const std::lock_guard lock(mutex_);
    refused = hold_ && held_.size() >= max_queued_;
    if (hold_ && !refused) {
      held_.emplace_back(std::move(batch), std::move(done));
      return;
    }
  }
  if (refused) {
    return done(absl::ResourceExhaustedError(
        absl::StrCat("the queue of metadata commits is full (", max_queued_, " wait): try again")));
  }
  Complete(batch, done);
}

void FakeMetadataStore::Complete(const Batch& batch, const CommitDone& done) {
  absl::Status status;
  {
    const std::lock_guard lock(mutex_);
    if (!failures_.empty()) {
      status = std::move(failures_.front());
      failures_.pop_front();
    } else {
      for (const Batch::Mutation& mutation : batch.mutations()) {
        if (mutation.value) {
          records_[{mutation.table, mutation.key}] = *mutation.value;
        } else {
          records_.erase({mutation.table, mutation.key});
        }
      }
      ++commits_;
    }
  }
  done(std::move(status));
}

absl::StatusOr<std::string> FakeMetadataStore::Get(Table table, std::string_view key) const {
  const std::lock_guard lock(mutex_);
  const auto found = records_.find({table, std::string(key)});
  if (found == records_.end()) {
    return absl::NotFoundError(
        absl::StrCat("no record '", std::string(key), "' in table ", TableName(table)));
  }
  return found->second;
}

absl::Status FakeMetadataStore::Scan(Table table, std::string_view prefix,
                                     const ScanCallback& callback) const {
  std::vector<std::pair<std::string, std::string>> snapshot;  // the callback may call the store
  {
    const std::lock_guard lock(mutex_);
    for (auto it = records_.lower_bound({table, std::string(prefix)}); it != records_.end(); ++it) {
      if (it->first.first != table || !it->first.second.starts_with(prefix)) break;
      snapshot.emplace_back(it->first.second, it->second);
    }
  }
  for (const auto& [key, value] : snapshot) {
    if (!callback(key, value)) break;
  }
  return absl::OkStatus();
}

void FakeMetadataStore::Hold() {
  const std::lock_guard lock(mutex_);
  hold_ = true;
}

bool FakeMetadataStore::CompleteNext() {
  std::pair<Batch, CommitDone> next;
  {
    const std::lock_guard lock(mutex_);
    if (held_.empty()) return false;
    next = std::move(held_.front());
    held_.pop_front();
  }
  Complete(next.first, next.second);
  return true;
}

void FakeMetadataStore::Release() {
  while (CompleteNext()) {
  }
  const std::lock_guard lock(mutex_);
  hold_ = false;
}

void FakeMetadataStore::Crash() {
  const std::lock_guard lock(mutex_);
  held_.clear();
  hold_ = false;
}

void FakeMetadataStore::FailNext(absl::Status status, std::size_t count) {
  const std::lock_guard lock(mutex_);
  failures_.insert(failures_.end(), count, status);
}

std::size_t FakeMetadataStore::held() const {
  const std::lock_guard lock(mutex_);
  return held_.size();
}

std::size_t FakeMetadataStore::commits() const {
  const std::lock_guard lock(mutex_);
  return commits_;
}

}  // namespace troupe::storage
