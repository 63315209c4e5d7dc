// RUN VALUES: the tensors that a run has so far: its inputs and the outputs of its steps, by "input" or
// "step.output". Owned by one workflow run.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/request.pb.h"
#include "proto/workflow.pb.h"

namespace troupe::actors {

struct RunValue {
  proto::TensorSpec spec;
  std::shared_ptr<const std::string> bytes;
};

class RunValues {
 public:
  void Set(const std::string& name, RunValue value) { values_[name] = std::move(value); }
  // NotFound: a bug of the run, since the workflow was validated; said rather than crashed on.
  [[nodiscard]] absl::StatusOr<RunValue> Find(const std::string& name) const;

  // Checks the request's tensors against the workflow's inputs: names, types, shapes. The error says what was
  // expected.
  [[nodiscard]] static absl::Status CheckInputs(const proto::WorkflowSpec& spec,
                                                const proto::InferRequest& request);
  // The calls that one step makes: one, or one for each slice of its for_each, which may be none. Each of its bindings is
  // one value.
  [[nodiscard]] absl::StatusOr<std::vector<std::vector<RunValue>>> CallsOf(
      const proto::WorkflowStep& step) const;
  // The outputs of a step from those of its calls.
  [[nodiscard]] static absl::StatusOr<std::vector<RunValue>> Join(
      const proto::WorkflowStep& step, const std::vector<std::vector<RunValue>>& calls);

 private:
  std::map<std::string, RunValue> values_;
};

}  // namespace troupe::actors
