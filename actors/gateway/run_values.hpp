// RUN VALUES: the tensors that a run has so far: its inputs and the outputs of its steps, by "input" or
// "step.output". Owned by one workflow run. Of an output that stayed where it was computed the run has only the
// reference: the bytes go from the worker that keeps them to the workers that read them, and never come here.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "actors/gateway/run_value.hpp"
#include "cluster/workflows/step_ends.hpp"
#include "proto/request.pb.h"
#include "proto/workflow.pb.h"

namespace troupe::actors {

class RunValues {
 public:
  // The numbers of the values that a step has read, by their names. A value that is set or lost gets another number.
  using Numbers = std::map<std::string, std::uint64_t>;

  void Set(const std::string& name, RunValue value) { values_[name] = {std::move(value), next_number_++}; }
  // The outputs of all steps: another gateway has the run, or it has ended.
  void DropOutputs();
  // NotFound: a bug of the run, since the workflow was validated; said rather than crashed on.
  [[nodiscard]] absl::StatusOr<RunValue> Find(const std::string& name) const;

  // Checks the request's tensors against the workflow's inputs: names, types, shapes. The error says what was
  // expected.
  [[nodiscard]] static absl::Status CheckInputs(const proto::WorkflowSpec& spec,
                                                const proto::InferRequest& request);
  // The numbers of the values that this step reads now.
  [[nodiscard]] Numbers NumbersOf(const proto::WorkflowStep& step) const;
  // A step that has read the value under the number in `read` has found that a node lost it. If the log has the bytes, the value is
  // in the log only from now on, else it is gone. A value that has another number by now stays: another step has found it lost
  // before, and it is there again.
  void Lost(const std::string& name, const Numbers& read);
  // What nodes keep and no step will read any more that has not ended: they keep it no longer.
  void DropRead(const proto::WorkflowSpec& spec, const cluster::StepEnds& ends);
  // Of these steps, those with outputs that are read somewhere in the workflow and are not here.
  [[nodiscard]] std::set<std::string> Missing(const proto::WorkflowSpec& spec,
                                              const std::set<std::string>& steps) const;
  // The values whose bytes a step needs at the gateway: values that only the log has, and values that its for_each
  // splits across their rows.
  [[nodiscard]] std::vector<std::string> NeededAsBytes(const proto::WorkflowStep& step) const;
  // The calls that one step makes: one, or one for each slice of its for_each, which may be none. Each of its bindings is
  // one value.
  [[nodiscard]] absl::StatusOr<std::vector<std::vector<RunValue>>> CallsOf(
      const proto::WorkflowStep& step) const;
  // The outputs of a step from those of its calls.
  [[nodiscard]] static absl::StatusOr<std::vector<RunValue>> Join(
      const proto::WorkflowStep& step, const std::vector<std::vector<RunValue>>& calls);

 private:
  struct Numbered {
    RunValue value;
    std::uint64_t number = 0;
  };
  using Values = std::map<std::string, Numbered>;
  // The value is in the log only from now on; or it is gone, if the log does not have it.
  void FallBack(Values::iterator it);

  Values values_;
  std::uint64_t next_number_ = 1;
};

}  // namespace troupe::actors
