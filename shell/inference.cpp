#include "shell/inference.hpp"

#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "base/status.hpp"
#include "proto/function_signature.hpp"
#include "shell/exit_code.hpp"
#include "shell/inputs/files.hpp"
#include "shell/inputs/json_tensor.hpp"
#include "shell/inputs/npy.hpp"
#include "shell/inputs/tensor.hpp"
#include "shell/inputs/tensor_values.hpp"
#include "shell/text/cat.hpp"
#include "shell/versions.hpp"
#include "shell/views.hpp"

namespace troupe::shell {

namespace {

constexpr Duration kInferTimeout = std::chrono::seconds(30);

using Specs = std::vector<proto::TensorSpec>;

std::string DescribeTensors(const Specs& specs) {
  if (specs.empty()) return "nothing";
  return absl::StrJoin(specs, ", ", [](std::string* out, const proto::TensorSpec& spec) {
    Append(out, Printable(spec.name()), " ", Describe(spec));
  });
}

Specs::const_iterator FindTensor(const Specs& specs, const std::string& name) {
  return std::find_if(specs.begin(), specs.end(), [&](const auto& spec) { return spec.name() == name; });
}

// "x=FILE" in its parts. A file's own name may hold '=', so the part before counts only if it could be a
// tensor's name.
std::pair<std::string, std::string> SplitWish(const std::string& text) {
  const auto equals = text.find('=');
  if (equals == std::string::npos || equals == 0) return {"", equals == 0 ? text.substr(1) : text};
  return {text.substr(0, equals), text.substr(equals + 1)};
}

absl::StatusOr<Signature> WorkflowSignature(Session& session, const proto::FunctionKey& key) {
  proto::AdminRequest request;
  request.mutable_show_workflow()->set_name(key.name());
  request.mutable_show_workflow()->set_version(key.version());
  TROUPE_ASSIGN_OR_RETURN(const auto reply, session.Ask(request));
  if (reply.workflows().empty()) return absl::NotFoundError(Cat("there is no workflow '", key.name(), "'"));
  // Listed from the oldest version to the newest.
  const auto& workflow = *reply.workflows().rbegin();
  Signature signature{key, {}, {workflow.outputs().begin(), workflow.outputs().end()}};
  for (const auto& input : workflow.spec().inputs()) signature.inputs.push_back(input.spec());
  return signature;
}

std::string InferJson(const proto::InferReply& reply) {
  const auto& times = reply.times();
  std::vector<std::string> outputs;
  for (const auto& tensor : reply.outputs()) outputs.push_back(TensorToJson(tensor));
  return Cat("{\"function\": ", JsonString(reply.function().name()),
             ", \"version\": ", JsonString(reply.function().version()),
             ", \"node\": ", JsonString(reply.node()), ", \"gpu\": ", reply.gpu(),
             ", \"attempts\": ", reply.attempts(), ", \"hit\": ", reply.hit() ? "true" : "false",
             ", \"times\": {\"router_queue_ns\": ", times.router_queue_ns(),
             ", \"node_queue_ns\": ", times.node_queue_ns(), ", \"swap_ns\": ", times.swap_ns(),
             ", \"compute_ns\": ", times.compute_ns(), ", \"copy_ns\": ", times.copy_ns(),
             "}, \"outputs\": [", absl::StrJoin(outputs, ", "), "]}\n");
}

absl::StatusOr<proto::InferRequest> BuildRequest(const Signature& signature, const Arguments& arguments,
                                                 Duration timeout) {
  proto::InferRequest request;
  *request.mutable_function() = signature.key;
  request.set_timeout_ns(timeout.count());
  const double priority = arguments.NumberOr("--priority", 0);
  if (priority > 4294967295.0 || priority != static_cast<double>(static_cast<std::uint64_t>(priority)))
    return UsageError("--priority is a whole number up to 4294967295; smaller is more urgent");
  request.set_priority(static_cast<std::uint32_t>(priority));
  auto inputs = ReadInputs(signature, arguments.All("--input"));
  if (!inputs.ok()) return AsUsageError(inputs.status());
  std::uint64_t bytes = 0;
  for (auto& tensor : *inputs) {
    bytes += tensor.data().inlined().size();
    *request.add_inputs() = std::move(tensor);
  }
  if (bytes > kMostInputBytes) {
    return UsageError(Cat("the inputs have ", FormatBytes(Bytes(bytes)), " together; at most ",
                          FormatBytes(Bytes(kMostInputBytes)),
                          " travel through the shell; send larger ones to a gateway's HTTP port"));
  }
  return request;
}

}  // namespace

absl::StatusOr<Signature> AskSignature(Session& session, const proto::FunctionKey& key, Target target) {
  if (target == Target::kWorkflow) return WorkflowSignature(session, key);
  proto::AdminRequest request;
  *request.mutable_show_function()->mutable_key() = key;
  const auto reply = session.Ask(request);
  if (absl::IsNotFound(reply.status())) {
    auto workflow = WorkflowSignature(session, key);
    if (!absl::IsNotFound(workflow.status())) return workflow;
    return absl::NotFoundError(Cat("there is no function or workflow '", Printable(key.name()), "'",
                                   key.version().empty() ? "" : " of that version",
                                   "; 'troupe function list' shows what there is"));
  }
  if (!reply.ok()) return reply.status();
  const auto& found = reply->functions();
  // An unloaded version answers only calls that name it, with an error that says so.
  const auto versions = Versions::Of(*reply);
  const auto answering = versions.Answering().empty() ? versions.Newest() : versions.Answering();
  const auto newest = std::find_if(found.begin(), found.end(), [&](const auto& function) {
    return function.record().key().version() == answering;
  });
  if (newest == found.end()) return absl::NotFoundError(Cat("there is no function '", key.name(), "'"));
  if (!newest->record().loaded()) {
    return absl::FailedPreconditionError(Cat(DescribeKey(newest->record().key()),
                                             " is unloaded; serve it again with: troupe function load ",
                                             Printable(key.name()), " --version ", answering));
  }
  const auto inputs = proto::CallerInputs(newest->record());
  const auto outputs = proto::CallerOutputs(newest->record());
  return Signature{key, {inputs.begin(), inputs.end()}, {outputs.begin(), outputs.end()}};
}

absl::StatusOr<std::vector<proto::Tensor>> ReadInputs(const Signature& signature,
                                                      const std::vector<std::string>& given) {
  const std::string name = DescribeKey(signature.key);
  std::vector<proto::Tensor> tensors;
  std::set<std::string> seen;
  for (const auto& wish : given) {
    auto [input, path] = SplitWish(wish);
    if (input.empty() && signature.inputs.size() == 1) input = signature.inputs[0].name();
    if (input.empty()) {
      return absl::InvalidArgumentError(Cat("--input ", wish, " names no input; ", name, " takes ",
                                            DescribeTensors(signature.inputs), "; write --input NAME=FILE"));
    }
    const auto declared = FindTensor(signature.inputs, input);
    if (declared == signature.inputs.end()) {
      return absl::InvalidArgumentError(Cat("there is no input '", Printable(input), "'; ", name, " takes ",
                                            DescribeTensors(signature.inputs)));
    }
    if (!seen.insert(input).second)
      return absl::InvalidArgumentError(Cat("input '", input, "' is given twice"));
    TROUPE_ASSIGN_OR_RETURN(auto tensor, ReadTensorFile(path, *declared));
    tensors.push_back(std::move(tensor));
  }
  for (const auto& spec : signature.inputs) {
    if (seen.contains(spec.name())) continue;
    return absl::InvalidArgumentError(Cat("input '", Printable(spec.name()), "' ", Describe(spec),
                                          " is missing; give it with --input ", Printable(spec.name()),
                                          "=FILE.npy (or .pb, .json)"));
  }
  return tensors;
}

absl::StatusOr<std::vector<OutputFile>> PlanOutputs(const Signature& signature,
                                                    const std::vector<std::string>& wishes) {
  const std::string name = DescribeKey(signature.key);
  std::vector<OutputFile> plan;
  for (const auto& wish : wishes) {
    auto [output, path] = SplitWish(wish);
    if (output.empty() && signature.outputs.size() == 1) output = signature.outputs[0].name();
    if (output.empty()) {
      return absl::InvalidArgumentError(Cat("--output ", wish, " names no output; ", name, " gives ",
                                            DescribeTensors(signature.outputs),
                                            "; write --output NAME=FILE.npy"));
    }
    const auto declared = FindTensor(signature.outputs, output);
    if (declared == signature.outputs.end()) {
      return absl::InvalidArgumentError(Cat("there is no output '", Printable(output), "'; ", name, " gives ",
                                            DescribeTensors(signature.outputs)));
    }
    for (const auto& other : plan)
      if (other.path == path) return absl::InvalidArgumentError(Cat("two outputs would go to '", path, "'"));
    proto::Tensor empty;
    *empty.mutable_spec() = *declared;
    TROUPE_RETURN_IF_ERROR(WriteNpy(empty).status());  // of a type that has such a form
    TROUPE_RETURN_IF_ERROR(CheckWritable(path));
    plan.push_back({std::move(output), std::move(path)});
  }
  return plan;
}

absl::Status SaveOutputs(const google::protobuf::RepeatedPtrField<proto::Tensor>& outputs,
                         const std::vector<OutputFile>& plan) {
  for (const auto& [output, path] : plan) {
    const auto tensor = std::find_if(outputs.begin(), outputs.end(), [&, &wanted = output](const auto& one) {
      return one.spec().name() == wanted;
    });
    if (tensor == outputs.end())
      return absl::InternalError(
          Cat("the reply has no output '", Printable(output), "', which was declared"));
    TROUPE_ASSIGN_OR_RETURN(const auto file, WriteNpy(*tensor));
    TROUPE_RETURN_IF_ERROR(WriteFile(path, file));
  }
  return absl::OkStatus();
}

absl::Status RunInference(Session& session, const Arguments& arguments, Target target) {
  for (const auto& wish : arguments.All("--output"))
    if (!absl::EndsWith(wish, ".npy"))
      return UsageError(Cat("--output ", wish, " is saved as .npy; name it so"));
  proto::FunctionKey key;
  key.set_name(arguments.Text("NAME"));
  key.set_version(arguments.Text("--version"));
  TROUPE_ASSIGN_OR_RETURN(const auto signature, AskSignature(session, key, target));
  const Duration timeout = session.options().timeout.value_or(kInferTimeout);
  TROUPE_ASSIGN_OR_RETURN(auto request, BuildRequest(signature, arguments, timeout));
  const auto plan = PlanOutputs(signature, arguments.All("--output"));
  if (!plan.ok()) return AsUsageError(plan.status());
  const Time begin = session.console().Now();
  TROUPE_ASSIGN_OR_RETURN(const auto reply, session.Infer(std::move(request), timeout));
  const Duration waited = session.console().Now() - begin;
  if (session.json()) {
    session.out() << InferJson(reply);
  } else {
    session.out() << ReplyLine(reply, waited) << '\n';
    for (const auto& tensor : reply.outputs()) session.out() << SummariseTensor(tensor, session.style());
  }
  return SaveOutputs(reply.outputs(), *plan);
}

}  // namespace troupe::shell
