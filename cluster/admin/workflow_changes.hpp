// WORKFLOW CHANGES: workflows that developers submit and remove, and runs of them that operators cancel.
#pragma once

#include "cluster/events.hpp"

namespace troupe::cluster {

struct Parts;

class WorkflowChanges {
 public:
  explicit WorkflowChanges(Parts& parts) : parts_(parts) {}

  void Submit(Ask ask, const proto::SubmitWorkflow& wish);
  // The answer has the version that was removed, and then those that stay.
  void Remove(Ask ask, const proto::RemoveWorkflow& wish);
  void CancelRun(Ask ask, const proto::CancelRun& wish);

 private:
  Parts& parts_;
};

}  // namespace troupe::cluster
