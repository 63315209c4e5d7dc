// Records and commands of a cluster, for tests.
#pragma once

#include <string>

#include "base/digest.hpp"
#include "base/units.hpp"
#include "proto/function.pb.h"
#include "proto/workflow.pb.h"

namespace troupe::cluster {

inline proto::StartRun StartOf(const std::string& run, const std::string& workflow = "flow") {
  proto::StartRun command;
  command.set_run(run);
  command.set_workflow(workflow);
  command.set_version("1");
  return command;
}

inline proto::CommitStep StepOf(const std::string& run, const std::string& step,
                                const std::string& bytes = "x") {
  proto::CommitStep command;
  command.set_run(run);
  command.set_step(step);
  command.add_outputs()->set_inlined(bytes);
  return command;
}

inline proto::FinishRun FinishOf(const std::string& run, proto::RunState state, std::int64_t unix_ns = 0) {
  proto::FinishRun command;
  command.set_run(run);
  command.set_state(state);
  command.set_message("because");
  command.set_unix_ns(unix_ns);
  return command;
}

inline proto::FunctionRecord FunctionOf(const std::string& name, Bytes weights = MiB(1)) {
  proto::FunctionRecord record;
  record.mutable_key()->set_name(name);
  record.set_model_digest(Sha256Hex("model " + name));
  record.set_weights_digest(Sha256Hex("weights " + name));
  record.set_onnx_digest(Sha256Hex("onnx " + name));
  record.set_weights_bytes(weights.count());
  record.set_model_bytes(1000);
  record.set_loaded(true);
  record.mutable_slo()->set_deadline_ns(1000000);
  auto& input = *record.add_inputs();
  input.set_name("x");
  input.set_type(proto::FP32);
  input.add_shape(-1);
  *record.add_outputs() = input;
  record.mutable_outputs(0)->set_name("y");
  return record;
}

inline proto::WorkflowRecord FlowOf(const std::string& name) {
  proto::WorkflowRecord record;
  record.mutable_spec()->set_name(name);
  record.mutable_spec()->set_version("1");
  return record;
}

}  // namespace troupe::cluster
