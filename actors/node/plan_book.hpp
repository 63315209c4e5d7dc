// PLAN BOOK: which plans a worker has prepared, and which orders wait for one. A run whose shapes are new is
// held until its plan is prepared; other runs pass. Owned by an executor, one per worker life.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "proto/worker.pb.h"

namespace troupe::actors {

class PlanBook {
 public:
  explicit PlanBook(std::size_t limit) : limit_(limit) {}

  // A new worker has nothing; an adopted one says what it has.
  void Reset(const proto::WorkerDescription& worker);
  // Host copies are learned from the orders that carry them.
  void Learn(const proto::HostCopy& copy) { copies_[copy.digest()] = copy; }
  [[nodiscard]] const proto::HostCopy* Copy(const std::string& digest) const;

  [[nodiscard]] bool Prepared(const proto::RunOrder& run) const { return prepared_.contains(Key(run)); }
  // Remembers that `order` waits; true when the plan is not being prepared yet, so that the caller orders it.
  [[nodiscard]] bool Wait(const proto::WorkerOrder& order);
  void MarkPrepared(const proto::PrepareOrder& order);
  // The worker dropped the plan (its cache is bounded).
  void Forget(const proto::RunOrder& run) { prepared_.erase(Key(run)); }
  // The orders that waited for this plan, in their order of arrival; they wait no more.
  [[nodiscard]] std::vector<proto::WorkerOrder> Waiting(const proto::PrepareOrder& order);
  // Takes a waiting order out (it was cancelled); false when it does not wait.
  [[nodiscard]] bool Remove(std::uint64_t sequence);

 private:
  static std::string Key(const proto::RunOrder& run);
  static std::string Key(const proto::PrepareOrder& order);

  const std::size_t limit_;
  std::set<std::string> prepared_;
  std::map<std::string, std::vector<proto::WorkerOrder>> waiting_;
  std::map<std::string, proto::HostCopy> copies_;
};

}  // namespace troupe::actors
