// SHARING CHANGES: how functions share their GPUs, as developers change it while the functions are served; and as the
// profiles change to which functions leave settings (profiling/profiled_sharing.hpp).
//
// After a start of the manager the nodes join one after the other, and the kinds of their GPUs are not known at once.
// For kSettling, and until the first node has joined, functions keep the values that the store has of them.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "base/units.hpp"
#include "cluster/events.hpp"
#include "cluster/profiling/profiled_sharing.hpp"
#include "cluster/records/mutation.hpp"

namespace troupe::cluster {

struct Parts;

class SharingChanges {
 public:
  static constexpr Duration kSettling = std::chrono::seconds(2);
  static constexpr Duration kRetry = std::chrono::seconds(1);  // of what could not be stored
  static constexpr std::size_t kMostAtOnce = 1000;             // functions in one change

  explicit SharingChanges(Parts& parts) : parts_(parts) {}

  // A wish without a version means the newest one. A wish that changes nothing stores nothing. The answer has the
  // version as it is then.
  void Update(Ask ask, const proto::UpdateFunction& wish);
  // Has the functions follow what changed of profiles or of the kinds of GPU since the last call.
  void Follow();
  // Sets what the profiles say, if the kinds of GPU are known.
  void FillIn(proto::FunctionRecord& record) const;

  // --- mutations (records/mutations.hpp) ---
  absl::Status Validate(Updating& change) const;
  void Answer(const Updating& change, const absl::Status& status);
  absl::Status Validate(FollowingProfiles& change) const;
  void Answer(const FollowingProfiles& change, const absl::Status& status);

 private:
  // What values from profiles depend on.
  struct Source {
    std::uint64_t profiles = 0, functions = 0;  // revisions
    GpuKinds kinds{};
    bool operator==(const Source&) const = default;
  };
  // Adds the command for one function, unless the wish changes nothing of it. Returns the key with the version that is updated.
  absl::StatusOr<proto::FunctionKey> AddUpdate(const proto::UpdateFunction& wish,
                                               std::vector<proto::SetFunctionSharing>& commands) const;
  void Tell(const proto::SetFunctionSharing& command);

  Parts& parts_;
  Time settled_ = Time::max();  // kSettling behind the first pulse
  Time not_before_{};           // after a change that could not be stored
  std::optional<Source> followed_{};
};

}  // namespace troupe::cluster
