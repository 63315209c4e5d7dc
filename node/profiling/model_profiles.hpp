// MODEL PROFILES: what the manager's profiles say of models on this node's kinds of GPU, for its estimates: how long a
// run takes on a function's share and with a request's batch. Where a profile says nothing, what was learned counts.
//
// A profile counts on the GPUs that are of its kind, and for the digest and the precision that it is of.
#pragma once

#include <set>
#include <string>

#include "base/units.hpp"
#include "node/request.hpp"
#include "proto/cluster.pb.h"
#include "proto/request.pb.h"
#include "scheduling/by_kind.hpp"

namespace troupe::node {

struct Parts;

class ModelProfiles {
 public:
  explicit ModelProfiles(Parts& parts) : parts_(parts) {}

  // The node's view has the update already.
  void Learn(const proto::ClusterUpdate& update);
  // Of the run that this request for the function asks for.
  [[nodiscard]] ProfiledRuns RunTimesOf(const proto::FunctionRecord& function,
                                        const proto::SubmitRequest& request) const;

 private:
  [[nodiscard]] ProfiledRuns RunTimesOf(const proto::FunctionRecord& function, std::uint32_t batch) const;
  // What the scheduler is told of a model as a whole: the run on the largest share that a function of it has.
  void Tell(const std::string& digest);

  Parts& parts_;
  std::set<std::string> told_;  // models that the scheduler has a time of, by digest
};

}  // namespace troupe::node
