// The commit thread: a bounded queue in front of one writer that takes all that waits as one group.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "storage/metadata_store.hpp"

namespace troupe::storage {

class GroupCommitter {
 public:
  struct Limits {
    std::size_t queued_batches;
    Bytes queued_bytes;
    std::size_t group_batches;
    Bytes group_bytes;
  };
  struct Waiting {
    Batch batch;
    MetadataStore::CommitDone done;
  };
  // Makes one group durable, or fails it as a whole. Called on the commit thread only.
  using Write = std::function<absl::Status(std::span<const Waiting>)>;

  GroupCommitter(const Limits& limits, Write write);
  // Writes and answers all that is queued, then ends the thread.
  ~GroupCommitter();

  // ResourceExhausted, through `done` and before it returns, when the queue is full.
  void Push(Batch batch, MetadataStore::CommitDone done);

 private:
  void Run();
  [[nodiscard]] std::vector<Waiting> TakeGroup();  // empty: stopped and drained

  const Limits limits_;
  const Write write_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Waiting> queue_;
  Bytes queued_bytes_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace troupe::storage
