// MODEL PROFILES: what the manager's profiles say of models on this node's kind of GPU, for its estimates: how long a
// run takes on a function's share and with a request's batch. Where a profile says nothing, what was learned counts.
//
// A profile counts where all GPUs of the node are of its kind, and for the digest and the precision that it is of.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "base/units.hpp"
#include "node/names.hpp"
#include "proto/cluster.pb.h"
#include "proto/request.pb.h"
#include "scheduling/run_profile.hpp"

namespace troupe::node {

struct Parts;

class ModelProfiles {
 public:
  explicit ModelProfiles(Parts& parts) : parts_(parts) {}

  void Learn(const proto::ClusterUpdate& update);
  // Of the run that this request for the function asks for; zero: no profile says.
  [[nodiscard]] Duration RunTimeOf(const proto::FunctionRecord& function,
                                   const proto::SubmitRequest& request) const;
  [[nodiscard]] Duration RunTimeOf(const proto::FunctionRecord& function, std::uint32_t batch) const;

 private:
  using Key = std::pair<std::string, proto::Precision>;  // digest and precision
  [[nodiscard]] bool IsOfOurKind(const std::string& kind) const;
  void Keep(const proto::FunctionProfile& profile);
  // What the scheduler is told of a model as a whole: the run on the largest share that a function of it has.
  void Tell(const std::string& digest);

  Parts& parts_;
  std::map<Key, RunProfile> profiles_;
};

}  // namespace troupe::node
