// QUEUED IMPORTS: runs imports on threads of their own, so that none of them keeps a thread from uploads and
// reads, in the order of cluster::ImportQueue. Threads: any. The destructor waits for the imports that run
// and drops the others unanswered, as WorkPool does.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "actors/core/work_pool.hpp"
#include "actors/seams/model_repository.hpp"
#include "base/units.hpp"
#include "cluster/import_queue.hpp"
#include "gpu/import/import_runner.hpp"
#include "proto/admin.pb.h"
#include "proto/function.pb.h"

namespace troupe::actors {

struct ImportCounts {
  std::size_t waiting = 0;
  std::size_t running = 0;
  std::uint64_t refused = 0;  // since the start
};

class QueuedImports {
 public:
  using Done = std::function<void(absl::StatusOr<proto::FunctionRecord>)>;
  using Import =
      std::function<absl::StatusOr<proto::FunctionRecord>(const ModelFile&, const gpu::OnImportProgress&)>;
  QueuedImports(cluster::ImportQueue::Limits limits, Import import);

  // `done` runs exactly once, on any thread: RESOURCE_EXHAUSTED when the queue has no place for it.
  void Add(const ModelFile& file, const std::string& client, Bytes size, Done done);
  // Of this file, or of all when empty: running imports first, then the waiting ones in their order.
  [[nodiscard]] std::vector<proto::ImportStatus> Describe(const std::string& onnx_digest) const;
  [[nodiscard]] ImportCounts counts() const;

 private:
  using Ticket = cluster::ImportQueue::Ticket;
  struct Entry {
    ModelFile file;
    Done done;
    Time asked;
    bool running = false;
    gpu::ImportProgress progress;
  };
  // Hands every import that may begin to the pool. With mutex_ held.
  void BeginAll();
  void Run(Ticket ticket);

  const Import import_;
  mutable std::mutex mutex_;
  cluster::ImportQueue queue_;       // guarded by mutex_
  std::map<Ticket, Entry> entries_;  // guarded by mutex_
  std::uint64_t refused_ = 0;        // guarded by mutex_
  WorkPool pool_;                    // last: its threads use all of the above
};

}  // namespace troupe::actors
