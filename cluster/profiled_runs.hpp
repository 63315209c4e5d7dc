// PROFILED RUNS: how long runs take by the profiles that the manager tells (001 FaST-GShare, section 3.2): of a model in
// a precision, on a share of a kind of GPU, with a batch. A member's view has one (cluster_view.hpp): nodes read it for
// their own kind, routers for all kinds.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/units.hpp"
#include "proto/cluster.pb.h"
#include "proto/function_profile.pb.h"
#include "scheduling/run_profile.hpp"

namespace troupe::cluster {

using GpuKinds = std::set<std::string>;
using RunsByKind = std::map<std::string, Duration>;  // by kind of GPU
// How long a run of a request takes by the profiles of its model.
struct ProfiledRun {
  // On the kind on which it is the shortest; zero: not every kind has a profile that says.
  Duration shortest{};
  // On each kind with a profile that says; empty while all GPUs are of one kind.
  RunsByKind by_kind{};
};
// Of the GPUs of a node that has not left; one that is dead may come back.
void AddGpuKinds(const proto::MemberRecord& member, GpuKinds& kinds);

// How many requests a run for these inputs answers: the open leading dimension of the function's inputs. 1 for a function
// without one.
[[nodiscard]] std::uint32_t BatchOf(const proto::FunctionRecord& function,
                                    const google::protobuf::RepeatedPtrField<proto::Tensor>& inputs);

// Of a profile's rows that did not fail and that count, those of the largest quota: one for each share and batch, and of
// several the last one.
[[nodiscard]] std::vector<const proto::ProfileRow*> RowsOfLargestQuota(
    const proto::FunctionProfile& profile, absl::FunctionRef<bool(const proto::ProfileRow&)> counts);

class ProfiledRuns {
 public:
  // As many as the manager keeps. Beyond so many the profile that changed least lately is forgotten.
  static constexpr std::size_t kMost = 1000;

  void Apply(const proto::ClusterUpdate& update);
  [[nodiscard]] bool empty() const { return profiles_.empty(); }
  // On the function's share. Zero: no profile says.
  [[nodiscard]] Duration RunTime(const proto::FunctionRecord& function, std::uint32_t batch,
                                 const std::string& kind) const;
  // On each of these kinds.
  [[nodiscard]] ProfiledRun RunOn(const proto::FunctionRecord& function, std::uint32_t batch,
                                  const GpuKinds& kinds) const;

 private:
  using Key = std::tuple<std::string, proto::Precision, std::string>;  // digest, precision, kind
  struct Kept {
    std::shared_ptr<const RunProfile> runs{};  // never changed: views that are copied have it in common
    std::uint64_t revision = 0;
  };
  void Keep(const proto::FunctionProfile& profile);

  std::map<Key, Kept> profiles_;
};

}  // namespace troupe::cluster
