// `workflow`: graphs of functions and their runs.
#include "base/status.hpp"
#include "shell/exit_code.hpp"
#include "shell/graphs/workflow_graph.hpp"
#include "shell/inference.hpp"
#include "shell/inputs/files.hpp"
#include "shell/inputs/tensor_values.hpp"
#include "shell/text/cat.hpp"
#include "shell/verbs/all_verbs.hpp"
#include "shell/versions.hpp"
#include "shell/views.hpp"

namespace troupe::shell {

namespace {

constexpr Bytes kMostWorkflowFile = MiB(1);

absl::Status WorkflowSubmit(Session& session, const Arguments& arguments) {
  auto yaml = ReadFile(arguments.Text("FILE"), kMostWorkflowFile);
  if (!yaml.ok()) return AsUsageError(yaml.status());
  // Bytes that are not valid UTF-8 would not even fit into the message.
  if (MakeUtf8(*yaml) != *yaml)
    return UsageError(Cat("'", arguments.Text("FILE"), "' is not valid UTF-8 text"));
  proto::AdminRequest request;
  request.mutable_submit_workflow()->set_yaml(*yaml);
  TROUPE_ASSIGN_OR_RETURN(const auto reply, session.Ask(request, "checking"));
  if (session.json()) return session.PrintJson(reply), absl::OkStatus();
  for (const auto& workflow : reply.workflows()) {
    session.out() << Printable(workflow.spec().name()) << " version " << Printable(workflow.spec().version())
                  << ": " << workflow.spec().steps_size()
                  << (workflow.spec().steps_size() == 1 ? " step" : " steps")
                  << "; run it with: troupe workflow run " << Printable(workflow.spec().name());
    for (const auto& input : workflow.spec().inputs())
      session.out() << " --input " << Printable(input.spec().name()) << "=FILE.npy";
    session.out() << '\n';
  }
  if (!reply.message().empty()) session.out() << Printable(reply.message()) << '\n';
  return absl::OkStatus();
}

absl::Status WorkflowList(Session& session, const Arguments&) {
  proto::AdminRequest request;
  request.mutable_list_workflows();
  TROUPE_ASSIGN_OR_RETURN(const auto reply, session.Ask(request));
  if (session.json()) return session.PrintJson(reply), absl::OkStatus();
  if (reply.workflows().empty()) {
    session.out() << "no workflows; submit one with: troupe workflow submit FILE.yaml\n";
    return absl::OkStatus();
  }
  session.out() << WorkflowTable(reply).Render(session.style());
  return absl::OkStatus();
}

absl::Status WorkflowShow(Session& session, const Arguments& arguments) {
  proto::AdminRequest request;
  request.mutable_show_workflow()->set_name(arguments.Text("NAME"));
  request.mutable_show_workflow()->set_version(arguments.Text("--version"));
  TROUPE_ASSIGN_OR_RETURN(const auto reply, session.Ask(request));
  if (session.json()) return session.PrintJson(reply), absl::OkStatus();
  bool first = true;
  for (const auto& workflow : reply.workflows()) {
    if (!first) session.out() << '\n';
    first = false;
    session.out() << WorkflowDetails(workflow, session.style());
  }
  return absl::OkStatus();
}

absl::Status WorkflowRemove(Session& session, const Arguments& arguments) {
  const auto& name = arguments.Text("NAME");
  proto::AdminRequest request;
  request.mutable_remove_workflow()->set_name(name);
  request.mutable_remove_workflow()->set_version(arguments.Text("--version"));
  TROUPE_ASSIGN_OR_RETURN(const auto reply, session.Ask(request, "removing"));
  if (session.json()) return session.PrintJson(reply), absl::OkStatus();
  // The manager says which one it removed, and which ones stay.
  const auto version =
      reply.workflows().empty() ? arguments.Text("--version") : reply.workflows(0).spec().version();
  const auto before = Versions::Of(reply);
  session.out() << Printable(name) << " version " << Printable(version) << " is removed"
                << before.Without(version).Since(before) << '\n';
  return absl::OkStatus();
}

absl::Status WorkflowRuns(Session& session, const Arguments& arguments) {
  proto::AdminRequest request;
  request.mutable_list_runs()->set_workflow(arguments.Text("NAME"));
  TROUPE_ASSIGN_OR_RETURN(const auto reply, session.Ask(request));
  // The runs of a removed workflow are still listed; without any, the name may be wrong.
  if (reply.runs().empty() && arguments.Has("NAME")) {
    request.mutable_show_workflow()->set_name(arguments.Text("NAME"));
    TROUPE_RETURN_IF_ERROR(session.Ask(request).status());
  }
  if (session.json()) return session.PrintJson(reply), absl::OkStatus();
  if (reply.runs().empty()) return session.out() << "no runs\n", absl::OkStatus();
  session.out() << RunTable(reply).Render(session.style());
  return absl::OkStatus();
}

absl::Status WorkflowStatus(Session& session, const Arguments& arguments) {
  proto::AdminRequest request;
  request.mutable_show_run()->set_run(arguments.Text("RUN"));
  TROUPE_ASSIGN_OR_RETURN(const auto reply, session.Ask(request));
  if (session.json()) return session.PrintJson(reply), absl::OkStatus();
  for (const auto& run : reply.runs()) session.out() << RunDetails(run, session.style());
  return absl::OkStatus();
}

absl::Status WorkflowRun(Session& session, const Arguments& arguments) {
  return RunInference(session, arguments, Target::kWorkflow);
}

absl::Status WorkflowCancel(Session& session, const Arguments& arguments) {
  proto::AdminRequest request;
  request.mutable_cancel_run()->set_run(arguments.Text("RUN"));
  TROUPE_ASSIGN_OR_RETURN(const auto reply, session.Ask(request, "cancelling"));
  if (session.json()) return session.PrintJson(reply), absl::OkStatus();
  session.out() << "run " << Printable(arguments.Text("RUN")) << " is cancelled\n";
  return absl::OkStatus();
}

// The version that the run was begun with, or else the one that is asked for.
absl::Status DrawWorkflow(Session& session, const Arguments& arguments) {
  proto::AdminRequest request;
  std::string version = arguments.Text("--version");
  proto::AdminReply shown;
  if (arguments.Has("--run")) {
    request.mutable_show_run()->set_run(arguments.Text("--run"));
    TROUPE_ASSIGN_OR_RETURN(shown, session.Ask(request));
    if (shown.runs().empty()) return absl::InternalError("the cluster manager has answered without the run");
    const auto& start = shown.runs(0).start();
    if (start.workflow() != arguments.Text("NAME"))
      return UsageError(Cat("run ", Printable(start.run()), " is one of workflow ",
                            Printable(start.workflow()), ", not of ", Printable(arguments.Text("NAME"))));
    if (!version.empty() && version != start.version())
      return UsageError(Cat("run ", Printable(start.run()), " was begun with version ",
                            Printable(start.version()), ", not ", Printable(version)));
    version = start.version();
  }
  request.mutable_show_workflow()->set_name(arguments.Text("NAME"));
  request.mutable_show_workflow()->set_version(version);
  TROUPE_ASSIGN_OR_RETURN(const auto reply, session.Ask(request));
  if (reply.workflows().empty())
    return absl::InternalError("the cluster manager has answered without the workflow");
  if (session.json()) return session.PrintJson(reply), absl::OkStatus();
  // Versions come in their order: without one, the newest.
  const auto& spec = reply.workflows(reply.workflows_size() - 1).spec();
  const auto graph = GraphOf(spec, shown.runs().empty() ? nullptr : &shown.runs(0));
  session.out() << GraphText(graph, session.style());
  if (arguments.Has("--svg")) return WriteFile(arguments.Text("--svg"), GraphSvg(graph));
  return absl::OkStatus();
}

const Argument kName = {.name = "NAME", .kind = Kind::kWorkflow, .help = "the workflow", .required = true};
const Argument kRun = {
    .name = "RUN", .kind = Kind::kRun, .help = "the run, as 'workflow runs' shows it", .required = true};
Argument Version(const char* help) {
  return {.name = "--version", .kind = Kind::kVersion, .help = help};
}

}  // namespace

std::vector<Verb> WorkflowVerbs() {
  const std::string group = "workflow";
  return {
      {.group = group,
       .name = "submit",
       .summary = "Check a workflow file and keep it",
       .arguments = {{.name = "FILE", .kind = Kind::kFile, .help = "the YAML file", .required = true}},
       .run = WorkflowSubmit},
      {.group = group, .name = "list", .summary = "All workflows", .run = WorkflowList},
      {.group = group,
       .name = "show",
       .summary = "One workflow: its steps",
       .arguments = {kName, Version("only this version")},
       .run = WorkflowShow},
      {.group = group,
       .name = "graph",
       .summary = "Draw a workflow, and how far one of its runs has come",
       .arguments = {kName,
                     {.name = "--svg", .kind = Kind::kFile, .help = "write the drawing to this file, too"},
                     {.name = "--run", .kind = Kind::kRun, .help = "show the states of this run's steps"},
                     Version("the version; the newest when absent")},
       .run = DrawWorkflow},
      {.group = group,
       .name = "remove",
       .summary = "Forget a version of a workflow",
       .arguments = {kName, Version("only this version; the newest when absent")},
       .run = WorkflowRemove},
      {.group = group,
       .name = "runs",
       .summary = "Runs, of all workflows or of one",
       .arguments = {{.name = "NAME", .kind = Kind::kWorkflow, .help = "only of this workflow"}},
       .run = WorkflowRuns},
      {.group = group,
       .name = "status",
       .summary = "One run: its steps and outputs",
       .arguments = {kRun},
       .run = WorkflowStatus},
      {.group = group,
       .name = "run",
       .summary = "Run a workflow on inputs from files",
       .arguments = {kName,
                     {.name = "--input",
                      .kind = Kind::kTensorFile,
                      .help = "NAME=FILE.npy, .pb or .json",
                      .repeated = true},
                     {.name = "--output",
                      .kind = Kind::kTensorFile,
                      .help = "save an output: NAME=FILE.npy",
                      .repeated = true},
                     {.name = "--priority", .kind = Kind::kNumber, .help = "1 is the most urgent; 0: as 100"},
                     Version("the version; the newest when absent")},
       .run = WorkflowRun},
      {.group = group,
       .name = "cancel",
       .summary = "Cancel a run",
       .arguments = {kRun},
       .run = WorkflowCancel},
  };
}

}  // namespace troupe::shell
