#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "shell/inputs/tensor.hpp"
#include "shell/text/cat.hpp"
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
  if (tensor.has_kept()) {
    const auto parts = tensor.kept_parts();
    return Cat(Printable(tensor.spec().name()), " ", Describe(tensor.spec()), " ",
               FormatBytes(Bytes(tensor.kept().length())), " kept ",
               parts > 1 ? Cat("in ", parts, " parts, the first ") : "", "by node ",
               Printable(tensor.kept().node()));
  }
  return Cat(Printable(tensor.spec().name()), " ", Describe(tensor.spec()), " ",
             tensor.has_blob() ? "as a blob" : FormatBytes(Bytes(tensor.inlined().size())));
}

std::string Called(const proto::WorkflowStep& step) {
  return step.workflow().empty() ? step.function() : Cat("workflow ", step.workflow());
}

std::string Values(const proto::Binding& binding) {
  auto out = binding.value();
  for (const auto& value : binding.fallbacks()) Append(&out, ", else ", value);
  return out;
}

template <class List>
std::string Bindings(const List& bindings) {
  return absl::StrJoin(bindings, ", ", [](std::string* text, const auto& binding) {
    Append(text, binding.tensor(), " = ", Values(binding));
  });
}

std::string OnErrorOf(const proto::WorkflowStep& step) {
  if (!step.on_error().step().empty()) return Cat("step ", step.on_error().step());
  return step.on_error().values().empty() ? "-" : Bindings(step.on_error().values());
}

template <class Tensors>
std::string Places(const Tensors& tensors) {
  return absl::StrJoin(tensors, ", ",
                       [](std::string* out, const auto& tensor) { out->append(Where(tensor)); });
}

std::string HowItEnded(const proto::CommitStep& step) {
  switch (step.end()) {
    case proto::STEP_SKIPPED:
      return Cat("skipped: ", Printable(step.message()));
    case proto::STEP_FAILED:
      return Cat("failed, and on_error counts: ", Printable(step.message()));
    default:
      return Places(step.outputs());
  }
}

// When it ended, from the begin of its run.
std::string After(const proto::RunRecord& run, const proto::CommitStep& step) {
  if (step.unix_ns() <= 0 || step.unix_ns() < run.start().unix_ns()) return "";
  return Cat(", after ", FormatDuration(Duration(step.unix_ns() - run.start().unix_ns())));
}

}  // namespace

Table WorkflowTable(const proto::AdminReply& reply) {
  Table table({"WORKFLOW", ">VERSION", ">STEPS", "FUNCTIONS", "SUBMITTED"});
  for (const auto& workflow : reply.workflows()) {
    const auto functions = absl::StrJoin(
        workflow.spec().steps(), ", ", [](std::string* out, const auto& step) { out->append(Called(step)); });
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
  Table steps({"STEP", "CALLS", ">VERSION", "INPUTS", "WHEN", "FOR EACH", "ON ERROR"});
  for (const auto& step : spec.steps()) {
    steps.Add({step.name(), Called(step), step.version().empty() ? "newest" : step.version(),
               Bindings(step.inputs()), step.has_when() ? Values(step.when()) : "-",
               step.has_for_each()
                   ? Cat(step.for_each().input(), " by dimension ", step.for_each().dimension())
                   : "-",
               OnErrorOf(step)});
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
  if (!run.start().parent().empty())
    Append(&out, "inside    step ", Printable(run.start().parent_step()), " of run ",
           Printable(run.start().parent()), "\n");
  if (!run.message().empty()) Append(&out, "message   ", Printable(run.message()), "\n");
  for (const auto& step : run.steps())
    Append(&out, "step      ", Printable(step.step()), ": ", HowItEnded(step), After(run, step),
           step.recomputed() > 0 ? Cat(", lost and run again ", step.recomputed(), " times") : "", "\n");
  if (!run.outputs().empty()) Append(&out, "outputs   ", Places(run.outputs()), "\n");
  return out;
}

}  // namespace troupe::shell
