#include "storage/group_committer.hpp"

#include <utility>

namespace troupe::storage {

GroupCommitter::GroupCommitter(const Limits& limits, Write write)
    : limits_(limits), write_(std::move(write)), thread_([this] { Run(); }) {}

GroupCommitter::~GroupCommitter() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void GroupCommitter::Push(Batch batch, MetadataStore::CommitDone done) {
  std::unique_lock lock(mutex_);
  const bool full =
      queue_.size() >= limits_.queued_batches || queued_bytes_ + batch.bytes() > limits_.queued_bytes;
  const bool first = queue_.empty();
  // A batch that alone exceeds the queue's bytes may pass when nothing else waits: it is within its own
  // limit.
  if (full && !(first && limits_.queued_batches > 0)) {
    lock.unlock();
    return done(absl::ResourceExhaustedError(
        absl::StrCat("the queue of metadata commits is full (", limits_.queued_batches, " batches or ",
                     FormatBytes(limits_.queued_bytes), "): try again")));
  }
  queued_bytes_ += batch.bytes();
  queue_.push_back({std::move(batch), std::move(done)});
  lock.unlock();
  // Without the lock, which the thread would wake up only to wait for; with more in the queue it is awake.
  if (first) wake_.notify_one();
}

void GroupCommitter::Run() {
  for (;;) {
    std::vector<Waiting> group = TakeGroup();
    if (group.empty()) return;
    const absl::Status status = write_(group);
    for (Waiting& waiting : group) waiting.done(status);
  }
}

std::vector<GroupCommitter::Waiting> GroupCommitter::TakeGroup() {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
  std::vector<Waiting> group;
  Bytes bytes;
  while (!queue_.empty() && group.size() < limits_.group_batches) {
    const Bytes next = queue_.front().batch.bytes();
    if (!group.empty() && bytes + next > limits_.group_bytes) break;
    bytes += next;
    queued_bytes_ -= next;
    group.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
  return group;
}

}  // namespace troupe::storage
