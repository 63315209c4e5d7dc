// WORKFLOW CHANGES: workflows that developers submit and remove, and runs of them that operators cancel.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "cluster/events.hpp"
#include "cluster/records/mutation.hpp"

namespace troupe::cluster {

struct Parts;

class WorkflowChanges {
 public:
  explicit WorkflowChanges(Parts& parts) : parts_(parts) {}

  void Submit(Ask ask, const proto::SubmitWorkflow& wish);
  // The answer lists the removed version first, and then the versions that stay.
  void Remove(Ask ask, const proto::RemoveWorkflow& wish);
  void CancelRun(Ask ask, const proto::CancelRun& wish);
  // The end of the run that an operator cancels is settled, or could not be stored.
  void Cancelled(Ask ask, const std::string& run, absl::Status status);

  // --- mutations (records/mutations.hpp) ---
  absl::Status Validate(SubmittingWorkflow& change) const;
  absl::Status Validate(RemovingWorkflow& change) const;
  void Answer(const SubmittingWorkflow& change, const absl::Status& status);
  void Answer(RemovingWorkflow& change, const absl::Status& status);

 private:
  Parts& parts_;
};

}  // namespace troupe::cluster
