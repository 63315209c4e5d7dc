// HOST COPIES: the models that a node has adopted into its host region, for each isolation key.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "proto/worker.pb.h"
#include "storage/host_segments.hpp"
#include "storage/model_repository.hpp"

namespace troupe::actors {

// Threads: any.
class HostCopies {
 public:
  // Both outlive it; `host` may be null (a manager): then nothing can be adopted.
  HostCopies(storage::ModelRepository& objects, storage::HostSegments* host)
      : objects_(objects), host_(host) {}

  // `canonical` names the model, `adopted` the object that this node's devices want.
  absl::StatusOr<proto::HostCopy> Adopt(const std::string& canonical, const std::string& adopted,
                                        const std::string& key);
  // False when there is nothing that GiveBack would give back.
  bool Disown(const std::string& canonical, const std::string& key);
  // Gives the memory of what has left back to the machine.
  void GiveBack();
  // What a worker of this isolation key maps; without a key, a region without room.
  absl::StatusOr<storage::HostSegments::RegionPtr> RegionOf(bool without_key, const std::string& key);
  [[nodiscard]] storage::HostRepository::Usage usage() const;

 private:
  storage::ModelRepository& objects_;
  storage::HostSegments* const host_;
  mutable std::mutex mutex_;  // HostSegments wants one caller at a time
  // (canonical digest, isolation key) -> adopted digest; guarded by mutex_
  std::map<std::pair<std::string, std::string>, std::string> names_;
};

}  // namespace troupe::actors
