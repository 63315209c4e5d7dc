// MODEL PROFILES: what the manager's profiles (cluster/profiled_runs.hpp) say of models on this node's kind of GPU, for its
// estimates: how long a run takes on a function's share and with a request's batch. Where a profile says nothing, what was
// learned counts. A profile counts where all GPUs of the node are of its kind.
#pragma once

#include <set>
#include <string>

#include "base/units.hpp"
#include "node/names.hpp"
#include "proto/cluster.pb.h"
#include "proto/request.pb.h"

namespace troupe::node {

struct Parts;

class ModelProfiles {
 public:
  explicit ModelProfiles(Parts& parts) : parts_(parts) {}

  // The node's view has the update already.
  void Learn(const proto::ClusterUpdate& update);
  // Of the run that this request for the function asks for; zero: no profile says.
  [[nodiscard]] Duration RunTimeOf(const proto::FunctionRecord& function,
                                   const proto::SubmitRequest& request) const;
  [[nodiscard]] Duration RunTimeOf(const proto::FunctionRecord& function, std::uint32_t batch) const;

 private:
  // Of all GPUs of this node; "": they are of several kinds.
  [[nodiscard]] std::string OurKind() const;
  // What the scheduler is told of a model as a whole: the run on the largest share that a function of it has.
  void Tell(const std::string& digest);

  Parts& parts_;
  std::set<std::string> told_;  // models that the scheduler has a time of, by digest
};

}  // namespace troupe::node
