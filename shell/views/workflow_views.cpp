#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "shell/cat.hpp"
#include "shell/inputs/tensor.hpp"
#include "shell/views.hpp"

namespace troupe::shell {

namespace {

std::string NameOf(proto::RunState state) {
  if (!proto::RunState_IsValid(state)) return "unknown";
  return absl::AsciiStrToLower(absl::StripPrefix(proto::RunState_Name(state), "RUN_"));
}

Colour ColourOf(proto::RunState state) {
  switch (state) {
    case proto::RUN_SUCCEEDED:
      return Colour::kGreen;
    case proto::RUN_FAILED:
      return Colour::kRed;
    case proto::RUN_RUNNING:
      return Colour::kCyan;
    default:
      return Colour::kYellow;
  }
}

std::string Took(const proto::RunRecord& run) {
  if (run.finished_unix_ns() <= 0 || run.finished_unix_ns() < run.start().unix_ns()) return "-";
  return FormatDuration(Duration(run.finished_unix_ns() - run.start().unix_ns()));
}

std::string Where(const proto::StoredTensor& tensor) {
  if (tensor.has_kept())
    return Cat(Printable(tensor.spec().name()), " ", Describe(tensor.spec()), " ",
               FormatBytes(Bytes(tensor.kept().length())), " kept by node ", Printable(tensor.kept().node()));
  return Cat(Printable(tensor.spec().name()), " ", Describe(tensor.spec()), " ",
             tensor.has_blob() ? "as a blob" : FormatBytes(Bytes(tensor.inlined().size())));
}

template <class Tensors>
std::string Places(const Tensors& tensors) {
  return absl::StrJoin(tensors, ", ",
                       [](std::string* out, const auto& tensor) { out->append(Where(tensor)); });
}

}  // namespace

Table WorkflowTable(const proto::AdminReply& reply) {
  Table table({"WORKFLOW", ">VERSION", ">STEPS", "FUNCTIONS", "SUBMITTED"});
  for (const auto& workflow : reply.workflows()) {
    const auto functions =
        absl::StrJoin(workflow.spec().steps(), ", ",
                      [](std::string* out, const auto& step) { out->append(step.function()); });
    table.Add({workflow.spec().name(), workflow.spec().version(), Cat(workflow.spec().steps_size()),
               Shorten(functions, 60), FormatUnixTime(workflow.submitted_unix_ns())});
  }
  return table;
}

std::string WorkflowDetails(const proto::WorkflowRecord& workflow, const Style& style) {
  const auto& spec = workflow.spec();
  std::string out =
      style.Paint(Printable(Cat(spec.name(), " version ", spec.version())), Colour::kBold) + "\n";
  for (const auto& input : spec.inputs())
    Append(&out, "input   ", Printable(input.spec().name()), "  ", Describe(input.spec()), "\n");
  for (const auto& output : workflow.outputs())
    Append(&out, "output  ", Printable(output.name()), "  ", Describe(output), "\n");
  Append(&out, "sent    ", FormatUnixTime(workflow.submitted_unix_ns()), "\n\n");
  Table steps({"STEP", "FUNCTION", ">VERSION", "INPUTS", "FAN-OUT"});
  for (const auto& step : spec.steps()) {
    const auto bindings = absl::StrJoin(step.inputs(), ", ", [](std::string* text, const auto& binding) {
      Append(text, binding.tensor(), " = ", binding.value());
    });
    steps.Add({step.name(), step.function(), step.version().empty() ? "newest" : step.version(), bindings,
               step.has_fan_out() ? Cat(step.fan_out().input(), " by dimension ", step.fan_out().dimension())
                                  : "-"});
  }
  return out + steps.Render(style);
}

Table RunTable(const proto::AdminReply& reply) {
  Table table({"RUN", "WORKFLOW", "STATE", ">STEPS DONE", "STARTED", ">TOOK", "MESSAGE"});
  for (const auto& run : reply.runs()) {
    table.Add({run.start().run(), run.start().workflow(), Cell(NameOf(run.state()), ColourOf(run.state())),
               Cat(run.steps_size()), FormatUnixTime(run.start().unix_ns()), Took(run),
               Shorten(run.message(), 60)});
  }
  return table;
}

std::string RunDetails(const proto::RunRecord& run, const Style& style) {
  std::string out = Cat(style.Paint(Printable(run.start().run()), Colour::kBold), "  ",
                        style.Paint(NameOf(run.state()), ColourOf(run.state())), "\n");
  Append(&out, "workflow  ", Printable(run.start().workflow()), " version ", Printable(run.start().version()),
         "\ngateway   ", Printable(run.start().gateway()), "\nstarted   ",
         FormatUnixTime(run.start().unix_ns()), "\nfinished  ", FormatUnixTime(run.finished_unix_ns()), "\n");
  if (!run.message().empty()) Append(&out, "message   ", Printable(run.message()), "\n");
  for (const auto& step : run.steps())
    Append(&out, "step      ", Printable(step.step()), ": ", Places(step.outputs()),
           step.recomputed() > 0 ? Cat(", lost and run again ", step.recomputed(), " times") : "", "\n");
  if (!run.outputs().empty()) Append(&out, "outputs   ", Places(run.outputs()), "\n");
  return out;
}

}  // namespace troupe::shell
