// INFERENCE: a function or workflow run from files. Asks what it takes, reads and checks the inputs, runs it
// and shows or saves what comes back.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "proto/function.pb.h"
#include "proto/tensor.pb.h"
#include "shell/session.hpp"
#include "shell/verb.hpp"

namespace troupe::shell {

enum class Target { kFunctionOrWorkflow, kWorkflow };

// The verb's arguments are NAME, --input, --output, --version, --priority.
absl::Status RunInference(Session& session, const Arguments& arguments, Target target);

// What a request must bring and what comes back, whatever it is that runs.
struct Signature {
  proto::FunctionKey key;
  std::vector<proto::TensorSpec> inputs;
  std::vector<proto::TensorSpec> outputs;
};
[[nodiscard]] absl::StatusOr<Signature> AskSignature(Session& session, const proto::FunctionKey& key,
                                                     Target target);

// Reads "NAME=FILE" for each input ("FILE" alone where there is only one); every declared input must come,
// once.
[[nodiscard]] absl::StatusOr<std::vector<proto::Tensor>> ReadInputs(const Signature& signature,
                                                                    const std::vector<std::string>& given);

// Where an output goes, as .npy.
struct OutputFile {
  std::string output;
  std::string path;
};
// Reads "NAME=FILE" for each of several outputs, "FILE" for the only one. What cannot be saved is refused
// here, before anything runs: names and types that do not fit, files that cannot be written.
[[nodiscard]] absl::StatusOr<std::vector<OutputFile>> PlanOutputs(const Signature& signature,
                                                                  const std::vector<std::string>& wishes);
[[nodiscard]] absl::Status SaveOutputs(const google::protobuf::RepeatedPtrField<proto::Tensor>& outputs,
                                       const std::vector<OutputFile>& plan);

}  // namespace troupe::shell
