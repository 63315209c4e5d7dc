// One thread per node that hears all workers of the node.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "gpu/worker/worker_client.hpp"
#include "proto/worker.pb.h"
#include "transport/liveness.hpp"

namespace troupe::gpu {

// How a worker ended.
struct WorkerDeath {
  std::optional<transport::ProcessEnd> end;  // nothing for a worker that was no child of ours
  std::string last_words;                    // from its control page
  // "signal 9 (Killed); last words: ..."
  [[nodiscard]] std::string ToString() const;
};

// What becomes of one connection. All on the reader's thread; must be short. After OnDeath or OnCorrupt
// nothing follows.
class LinkHandler {
 public:
  virtual ~LinkHandler() = default;
  virtual void OnOutcome(proto::WorkerOutcome outcome) = 0;
  // Outcomes that the worker wrote before it died have been handed over already.
  virtual void OnDeath(const WorkerDeath& death) = 0;
  // The worker lives but the link is of no use: its outcomes make no sense (DataLoss), or it let go of us
  // because a newer daemon came or our orders made no sense (Unavailable). Kill it or adopt it anew.
  virtual void OnCorrupt(const absl::Status& status) = 0;
};

// Waits with epoll for doorbells, process ends and closed sockets of all connections, and looks once more for
// a moment before it sleeps. Started by Start, joined by the destructor. Add and Remove from any thread.
class LinkReader {
 public:
  using Id = std::uint64_t;
  static absl::StatusOr<std::unique_ptr<LinkReader>> Start();
  ~LinkReader();
  Id Add(std::shared_ptr<WorkerConnection> connection, std::shared_ptr<LinkHandler> handler);
  // After its return the handler is not called any more (from the handler itself: after the current call).
  void Remove(Id id);
  [[nodiscard]] std::size_t connections() const;

 private:
  struct Link {
    Id id = 0;
    std::shared_ptr<WorkerConnection> connection;
    std::shared_ptr<LinkHandler> handler;
    bool armed = false;
    bool over = false;
  };
  LinkReader(transport::UniqueFd epoll, transport::UniqueFd wake);
  void Serve();
  bool Pump();
  void Sleep(int timeout_ms);
  bool Drain(Link& link);
  void Ended(Link& link);
  void Hear(std::uint64_t tag);
  void Detach(Link& link);

  transport::UniqueFd epoll_;
  transport::UniqueFd wake_;
  mutable std::recursive_mutex mutex_;  // held while handlers run, so that Remove can promise silence
  std::map<Id, Link> links_;            // guarded by mutex_
  Id next_ = 1;                         // guarded by mutex_
  bool stopping_ = false;               // guarded by mutex_
  std::thread thread_;
};

}  // namespace troupe::gpu
