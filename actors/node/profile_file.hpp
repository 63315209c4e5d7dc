// PROFILE FILE: what a node learned of its models, on its disk. The node role makes it and shares it with the
// node controller, which hands it the newest when something was learned, every few seconds at most. Losing it
// loses no request: the node learns again.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "actors/core/work_pool.hpp"
#include "proto/profile.pb.h"

namespace troupe::actors {

class ProfileFile {
 public:
  // The directory of `path` is there. `on_error` hears, on a thread of `pool`, of saves that failed.
  ProfileFile(std::string path, WorkPool& pool, std::function<void(const absl::Status&)> on_error);

  // Blocks: for the start. NotFound when there is none yet; DataLoss when it is damaged.
  [[nodiscard]] absl::StatusOr<proto::NodeProfiles> Load() const;
  // Returns at once. One save at a time; of those that come meanwhile only the newest is written.
  void Save(proto::NodeProfiles profiles);

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the save under way, which may outlive this object
  WorkPool& pool_;
};

}  // namespace troupe::actors
