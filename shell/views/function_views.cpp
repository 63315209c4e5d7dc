#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "proto/function_signature.hpp"
#include "proto/gpu_place.hpp"
#include "proto/precision.hpp"
#include "shell/inputs/tensor.hpp"
#include "shell/text/cat.hpp"
#include "shell/views.hpp"

namespace troupe::shell {

namespace {

std::string Objective(const proto::Slo& slo) {
  return DescribeObjective(slo.deadline_ns(), slo.percentile());
}

template <class Names>
std::string Join(const Names& names) {
  return names.empty() ? "-" : absl::StrJoin(names, ", ");
}

std::string SpecLines(const char* label, const google::protobuf::RepeatedPtrField<proto::TensorSpec>& specs) {
  std::string out;
  for (const auto& spec : specs)
    Append(&out, out.empty() ? label : "           ", Printable(spec.name()), "  ", Describe(spec), "\n");
  return out;
}

// "past <- present  FP32 [1, 8]": stays on the GPU from run to run.
std::string StateLine(const proto::FunctionRecord& record, const proto::StateTensor& state) {
  std::string out = Cat(Printable(state.input()), " <- ", Printable(state.output()));
  for (const auto& spec : record.inputs())
    if (spec.name() == state.input()) Append(&out, "  ", Describe(spec));
  return out;
}

// Nothing for a function that leaves it to the nodes.
std::string IsolationLine(proto::Isolation isolation) {
  switch (isolation) {
    case proto::ISOLATION_DEFAULT:
      return {};
    case proto::ISOLATION_SHARED:
      return "\nisolation  shared";
    case proto::ISOLATION_TENANT:
      return "\nisolation  tenant";
    case proto::ISOLATION_WORKFLOW:
      return "\nisolation  workflow";
    default:
      return "\nisolation  function";
  }
}

std::string ComputeLines(const proto::FunctionStatus& function, const proto::AdminReply& gpus) {
  const auto& record = function.record();
  std::string out;
  if (record.precision() != proto::PRECISION_FP32)
    Append(&out, "\nprecision  ", std::string(proto::Name(record.precision())));
  out += SharingLines(function);
  if (record.sharing().sm_partition() > 0) out += SmLines(record.sharing().sm_partition(), gpus);
  for (const auto& place : record.places()) Append(&out, "\nowns       ", Printable(proto::Describe(place)));
  if (!function.binding().empty()) Append(&out, "\nbinding    ", Printable(function.binding()));
  if (!function.place_problem().empty()) Append(&out, "\nunplaced   ", Printable(function.place_problem()));
  if (record.run_limit_ns() > 0)
    Append(&out, "\nrun limit  ", FormatDuration(Duration(record.run_limit_ns())));
  return out;
}

// Where the state of a function is, and its copies.
std::string HomeLines(const proto::FunctionStatus& function) {
  std::string out =
      Cat("state on   ", function.state_home().empty() ? "-" : Printable(function.state_home()), "\n");
  for (const auto& replica : function.state_replicas())
    Append(&out, "replica on ", Printable(replica.node()),
           replica.in_step() ? " (in step)" : " (being filled)", "\n");
  return out;
}

// Nothing for a version without a share, unless a roll back returns to it.
std::string ShareLine(const proto::FunctionRecord& record) {
  switch (record.role()) {
    case proto::VERSION_STABLE:
      return Cat("\nrequests   ", record.share_percent(), " % of those that name no version (stable)");
    case proto::VERSION_CANARY:
      return Cat("\nrequests   ", record.share_percent(), " % of those that name no version (canary)");
    case proto::VERSION_FORMER:
      return "\nrequests   those that name it (stable before; rollback returns to it)";
    default:
      return {};
  }
}

}  // namespace

std::string DescribeKey(const proto::FunctionKey& key) {
  return key.version().empty() ? Printable(key.name())
                               : Cat(Printable(key.name()), " version ", Printable(key.version()));
}

std::string DescribeObjective(std::int64_t deadline_ns, double percentile) {
  if (deadline_ns <= 0) return "-";
  return absl::StrFormat("%s at %g %%", FormatDuration(Duration(deadline_ns)), percentile);
}

std::string DescribeSpecs(const google::protobuf::RepeatedPtrField<proto::TensorSpec>& specs) {
  if (specs.empty()) return "-";
  return absl::StrJoin(specs, ", ", [](std::string* out, const proto::TensorSpec& spec) {
    Append(out, Printable(spec.name()), " ", Describe(spec));
  });
}

std::string WeightsOf(const proto::FunctionRecord& record) {
  const bool packed = record.precision() == proto::PRECISION_BF16 && !record.packed().empty();
  return FormatBytes(Bytes(packed ? record.packed(0).weights_bytes() : record.weights_bytes()));
}

std::string FunctionLine(const proto::FunctionStatus& function) {
  const auto& record = function.record();
  return Cat(DescribeKey(record.key()), ": ", WeightsOf(record), " of weights, takes ",
             DescribeSpecs(proto::CallerInputs(record)), ", gives ",
             DescribeSpecs(proto::CallerOutputs(record)), ", objective ", Objective(record.slo()),
             ", adopted by ",
             function.adopted_by().empty() ? "no node yet" : Printable(Join(function.adopted_by())));
}

std::string StagesLine(const proto::WorkflowRecord& workflow) {
  const auto& spec = workflow.spec();
  std::vector<std::string> inputs;
  for (const auto& input : spec.inputs())
    inputs.push_back(Cat(Printable(input.spec().name()), " ", Describe(input.spec())));
  return Cat(Printable(spec.name()), " version ", Printable(spec.version()),
             ": is called as a function and runs in ", spec.stages(), " stages, takes ",
             absl::StrJoin(inputs, ", "), ", gives ", DescribeSpecs(workflow.outputs()));
}

Table FunctionTable(const proto::AdminReply& reply) {
  Table table(
      {"FUNCTION", ">VERSION", "STATE", "OBJECTIVE", "TENANT", ">WEIGHTS", "ADOPTED BY", "RESIDENT ON"});
  for (const auto& function : reply.functions()) {
    const auto& record = function.record();
    const bool adopted = !function.adopted_by().empty();
    const auto [state, colour] = !record.loaded()           ? std::pair("unloaded", Colour::kDim)
                                 : adopted                  ? std::pair("served", Colour::kGreen)
                                 : record.problem().empty() ? std::pair("waiting", Colour::kYellow)
                                                            : std::pair("broken", Colour::kRed);
    const bool shares = record.role() == proto::VERSION_STABLE || record.role() == proto::VERSION_CANARY;
    table.Add({record.key().name(), record.key().version(),
               Cell(shares ? Cat(state, ", ", record.share_percent(), " %") : state, colour),
               Objective(record.slo()), record.tenant().empty() ? "-" : record.tenant(), WeightsOf(record),
               Join(function.adopted_by()), Join(function.resident_on())});
  }
  return table;
}

std::string FunctionDetails(const proto::FunctionStatus& function, const proto::AdminReply& gpus,
                            const Style& style) {
  const auto& record = function.record();
  std::string out = Cat(style.Paint(DescribeKey(record.key()), Colour::kBold),
                        record.loaded() ? "" : "  (unloaded: kept, not served)", "\n");
  if (!record.problem().empty()) Append(&out, "problem    ", Printable(record.problem()), "\n");
  Append(&out, SpecLines("inputs     ", proto::CallerInputs(record)),
         SpecLines("outputs    ", proto::CallerOutputs(record)));
  if (record.stage().count() > 0)
    Append(&out, "stage      ", record.stage().number(), " of ", record.stage().count(), " of ",
           Printable(record.stage().workflow()), "\n");
  for (const auto& state : record.state()) Append(&out, "state      ", StateLine(record, state), "\n");
  if (!record.state().empty()) Append(&out, "sequences  ", function.sequences(), "\n", HomeLines(function));
  Append(&out, "objective  ", Objective(record.slo()), "\ntenant     ",
         record.tenant().empty() ? "-" : Printable(record.tenant()), IsolationLine(record.isolation()),
         ComputeLines(function, gpus), "\nweights    ", FormatBytes(Bytes(record.weights_bytes())),
         ShareLine(record), "\ndeployed   ", FormatUnixTime(record.deployed_unix_ns()), "\nadopted by ",
         Printable(Join(function.adopted_by())), "\nresident   ", Printable(Join(function.resident_on())),
         "\nONNX       ", Printable(record.onnx_digest()), "\nmodel      ", Printable(record.model_digest()),
         "\n");
  for (const auto& packed : record.packed())
    Append(&out, "packed     ", Printable(packed.target()), ", ", FormatBytes(Bytes(packed.weights_bytes())),
           "  ", Printable(packed.model_digest()), "\n");
  return out;
}

std::string ReplyLine(const proto::InferReply& reply, Duration waited) {
  const auto& times = reply.times();
  std::string out = DescribeKey(reply.function());
  // A workflow ran in many places: its run, by its steps, is told of by `workflow status`.
  if (reply.node().empty()) return Cat(out, " in ", FormatDuration(waited));
  Append(&out, " on ", Printable(reply.node()), "/", reply.gpu(), " in ", FormatDuration(waited), " (queued ",
         FormatDuration(Duration(times.router_queue_ns() + times.node_queue_ns())), ", ",
         reply.hit() ? "resident" : Cat("swapped in ", FormatDuration(Duration(times.swap_ns()))),
         ", computed ", FormatDuration(Duration(times.compute_ns())));
  if (reply.attempts() > 1) Append(&out, ", ", reply.attempts(), " attempts");
  return out + ")";
}

}  // namespace troupe::shell
