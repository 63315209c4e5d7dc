// `function`: the registry of published models.
#include <algorithm>
#include <set>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.hpp"
#include "proto/gpu_sharing.hpp"
#include "proto/isolation.hpp"
#include "proto/precision.hpp"
#include "proto/stage_wish.hpp"
#include "shell/exit_code.hpp"
#include "shell/inputs/external_weights.hpp"
#include "shell/inputs/files.hpp"
#include "shell/session.hpp"
#include "shell/sharing_options.hpp"
#include "shell/text/cat.hpp"
#include "shell/verbs/all_verbs.hpp"
#include "shell/versions.hpp"
#include "shell/views.hpp"

namespace troupe::shell {

namespace {

// Import, packing and the first adoption of a large model.
constexpr Duration kDeployTimeout = std::chrono::minutes(5);

proto::FunctionKey KeyOf(const Arguments& arguments) {
  proto::FunctionKey key;
  key.set_name(arguments.Text("NAME"));
  key.set_version(arguments.Text("--version"));
  return key;
}

absl::StatusOr<proto::Isolation> IsolationOf(const std::string& mode) {
  if (const auto isolation = proto::ParseIsolation(mode)) return *isolation;
  return UsageError(Cat("--isolation is '", mode, "'; it is one of ", NamesIn(proto::kIsolations)));
}

absl::Status ReadCompute(const Arguments& arguments, proto::DeployRequest& deploy) {
  if (arguments.Has("--precision")) {
    const auto precision = proto::ParsePrecision(arguments.Text("--precision"));
    if (!precision) {
      return UsageError(Cat("--precision is '", arguments.Text("--precision"), "'; it is one of ",
                            NamesIn(proto::kPrecisions)));
    }
    deploy.set_precision(*precision);
  }
  proto::GpuSharing sharing;
  TROUPE_ASSIGN_OR_RETURN(const auto settings, ReadSharing(arguments, sharing));
  if (const auto fault = proto::FaultIn(sharing)) return UsageError(fault->why);
  if (!settings.empty()) *deploy.mutable_sharing() = sharing;
  if (arguments.Has("--run-limit")) {
    const Duration limit = arguments.DurationOr("--run-limit", Duration::zero());
    if (limit < std::chrono::milliseconds(1) || limit > std::chrono::hours(1)) {
      return UsageError(
          Cat("--run-limit is ", arguments.Text("--run-limit"), "; it is a time from 1ms to 1h, like 5s"));
    }
    deploy.set_run_limit_ns(limit.count());
  }
  return absl::OkStatus();
}

absl::Status ReadReplicas(const Arguments& arguments, proto::DeployRequest& deploy) {
  if (!arguments.Has("--state-replicas")) return absl::OkStatus();
  const double replicas = arguments.NumberOr("--state-replicas", 0);
  if (replicas != 0 && replicas != 1 && replicas != 2 && replicas != 3) {
    return UsageError(Cat("--state-replicas is ", arguments.Text("--state-replicas"),
                          "; it is a number from 0 to 3, of nodes that have copies of the function's state"));
  }
  if (replicas > 0 && deploy.state().empty())
    return UsageError("--state-replicas is given, and the function keeps no state: name it with --state");
  deploy.set_state_replicas(static_cast<std::uint32_t>(replicas));
  return absl::OkStatus();
}

absl::Status ReadStageMemory(const Arguments& arguments, proto::DeployRequest& deploy) {
  if (!arguments.Has("--stage-memory")) return absl::OkStatus();
  const auto bytes = ParseQuantity(arguments.Text("--stage-memory"), proto::kStageMemory);
  if (!bytes)
    return UsageError(Cat("--stage-memory is '", arguments.Text("--stage-memory"), "'; it is ",
                          ExpectedOf(proto::kStageMemory)));
  deploy.set_stage_memory(*bytes);
  return absl::OkStatus();
}

absl::StatusOr<proto::DeployRequest> DeploymentOf(const Arguments& arguments) {
  proto::DeployRequest deploy;
  deploy.set_name(arguments.Text("NAME"));
  deploy.set_version(arguments.Text("--version"));
  deploy.set_tenant(arguments.Text("--tenant"));
  if (arguments.Has("--isolation")) {
    TROUPE_ASSIGN_OR_RETURN(const auto isolation, IsolationOf(arguments.Text("--isolation")));
    deploy.set_isolation(isolation);
  }
  TROUPE_RETURN_IF_ERROR(ReadCompute(arguments, deploy));
  const double percentile = arguments.NumberOr("--percentile", 98);
  if (!(percentile > 0 && percentile <= 100)) {
    return UsageError(
        Cat("--percentile is ", arguments.Text("--percentile"), "; it lies above 1 and up to 100"));
  }
  // An objective of less than one request of a hundred is a slip.
  if (percentile <= 1) {
    return UsageError(absl::StrFormat("--percentile is %s, in percent; did you mean %g?",
                                      arguments.Text("--percentile"), percentile * 100));
  }
  if (arguments.Has("--percentile") && !arguments.Has("--deadline"))
    return UsageError("--percentile says how many requests meet the deadline; give --deadline too");
  // Without a deadline the cluster's own objective applies.
  if (arguments.Has("--deadline")) {
    deploy.mutable_slo()->set_deadline_ns(arguments.DurationOr("--deadline", Duration::zero()).count());
    deploy.mutable_slo()->set_percentile(percentile);
  }
  for (const auto& pair : arguments.All("--state")) {
    const auto at = pair.find('=');
    if (at == 0 || at == std::string::npos || at + 1 == pair.size()) {
      return UsageError(
          Cat("--state is '", pair, "'; it names an input and an output of the model, like past=present"));
    }
    auto& tensor = *deploy.add_state();
    tensor.set_input(pair.substr(0, at));
    tensor.set_output(pair.substr(at + 1));
  }
  TROUPE_RETURN_IF_ERROR(ReadReplicas(arguments, deploy));
  TROUPE_RETURN_IF_ERROR(ReadStageMemory(arguments, deploy));
  return deploy;
}

// How far the import of this file is; empty when the manager does not say.
std::string ImportLine(actors::AdminClient& client, const std::string& digest) {
  proto::AdminRequest request;
  request.mutable_show_import()->set_onnx_digest(digest);
  const auto reply = client.Ask(request, std::chrono::seconds(2));
  if (!reply.ok() || reply->imports().empty()) return {};
  const auto& import = reply->imports(0);
  if (import.stage() == "waiting")
    return Cat("waiting: ", import.ahead(), import.ahead() == 1 ? " import" : " imports", " before it");
  if (import.steps_total() == 0) return Printable(import.stage());
  return Cat(Printable(import.stage()), " ", import.steps(), "/", import.steps_total());
}

absl::Status FunctionDeploy(Session& session, const Arguments& arguments) {
  TROUPE_ASSIGN_OR_RETURN(auto deploy, DeploymentOf(arguments));
  const auto file = FindOnnxFile(arguments.Text("FILE"));
  if (!file.ok()) return AsUsageError(file.status());
  auto model = OpenModel(*file);
  if (!model.ok()) return AsUsageError(model.status());
  if ((*model)->size() == 0) return UsageError(Cat("'", *file, "' is empty"));
  TROUPE_ASSIGN_OR_RETURN(const auto digest, session.Upload(*std::move(model), "uploading"));
  deploy.set_onnx_digest(digest);
  proto::AdminRequest request;
  *request.mutable_deploy() = deploy;
  const auto reply =
      session.AskWatched(request, "importing, adopting", kDeployTimeout,
                         [digest](actors::AdminClient& client) { return ImportLine(client, digest); });
  if (!reply.ok()) return AsUnfinished(reply.status());
  if (session.json()) return session.PrintJson(*reply), absl::OkStatus();
  for (const auto& function : reply->functions()) session.out() << FunctionLine(function) << '\n';
  for (const auto& workflow : reply->workflows()) session.out() << StagesLine(workflow) << '\n';
  if (!reply->message().empty()) session.out() << Printable(reply->message()) << '\n';
  return absl::OkStatus();
}

absl::Status FunctionList(Session& session, const Arguments&) {
  proto::AdminRequest request;
  request.mutable_list_functions();
  TROUPE_ASSIGN_OR_RETURN(const auto reply, session.Ask(request));
  if (session.json()) return session.PrintJson(reply), absl::OkStatus();
  if (reply.functions().empty()) {
    session.out() << "no functions; deploy one with: troupe function deploy NAME FILE.onnx\n";
    return absl::OkStatus();
  }
  session.out() << FunctionTable(reply).Render(session.style());
  return absl::OkStatus();
}

// What GPUs there are when some function has a share of one; without them it is shown all the same.
proto::AdminReply GpusFor(Session& session, const proto::AdminReply& shown) {
  const auto& functions = shown.functions();
  if (std::none_of(functions.begin(), functions.end(),
                   [](const auto& function) { return function.record().sharing().sm_partition() > 0; }))
    return {};
  proto::AdminRequest request;
  request.mutable_list_gpus();
  auto gpus = session.Ask(request);
  return gpus.ok() ? *std::move(gpus) : proto::AdminReply();
}

absl::Status FunctionShow(Session& session, const Arguments& arguments) {
  proto::AdminRequest request;
  *request.mutable_show_function()->mutable_key() = KeyOf(arguments);
  TROUPE_ASSIGN_OR_RETURN(const auto reply, session.Ask(request));
  if (session.json()) return session.PrintJson(reply), absl::OkStatus();
  const auto gpus = GpusFor(session, reply);
  bool first = true;
  for (const auto& function : reply.functions()) {
    if (!first) session.out() << '\n';
    first = false;
    session.out() << FunctionDetails(function, gpus, session.style());
  }
  return absl::OkStatus();
}

// A command that changes a version says which: without --version it is the newest, which is settled here.
absl::StatusOr<Versions> Settle(Session& session, proto::FunctionKey& key) {
  proto::AdminRequest request;
  request.mutable_show_function()->mutable_key()->set_name(key.name());
  TROUPE_ASSIGN_OR_RETURN(const auto reply, session.Ask(request));
  auto versions = Versions::Of(reply);
  if (key.version().empty()) key.set_version(versions.Newest());
  return versions;
}

// "; workflow 'flow' calls it, and fails until it is deployed again": of a function that has no version left. A cluster
// that does not answer this has removed it all the same.
std::string LeftBehind(Session& session, const std::string& function) {
  proto::AdminRequest request;
  request.mutable_list_workflows();
  const auto reply = session.Ask(request);
  if (!reply.ok()) return "";
  std::set<std::string> callers;
  for (const auto& workflow : reply->workflows())
    for (const auto& step : workflow.spec().steps())
      if (step.function() == function) callers.insert(Cat("'", Printable(workflow.spec().name()), "'"));
  if (callers.empty()) return "";
  return Cat(callers.size() == 1 ? "; workflow " : "; workflows ", absl::StrJoin(callers, ", "),
             callers.size() == 1 ? " calls it, and fails" : " call it, and fail",
             " until it is deployed again");
}

absl::Status FunctionRemove(Session& session, const Arguments& arguments) {
  auto key = KeyOf(arguments);
  proto::AdminRequest request;
  *request.mutable_remove()->mutable_key() = key;
  TROUPE_ASSIGN_OR_RETURN(const auto reply, session.Ask(request, "removing"));
  if (session.json()) return session.PrintJson(reply), absl::OkStatus();
  // The manager says which one it removed, and which ones stay.
  if (!reply.functions().empty()) key = reply.functions(0).record().key();
  if (!reply.workflows().empty()) key.set_version(reply.workflows(0).spec().version());  // a model in stages
  const auto before = Versions::Of(reply);
  const auto after = before.Without(key.version());
  const bool last = !before.Newest().empty() && after.Newest().empty();
  session.out() << DescribeKey(key) << " is removed" << after.Since(before)
                << (last ? LeftBehind(session, key.name()) : "") << '\n';
  return absl::OkStatus();
}

absl::Status SetLoaded(Session& session, const Arguments& arguments, bool load) {
  auto key = KeyOf(arguments);
  const auto before = Settle(session, key);
  // The name may be a workflow's: the manager's answer to the order says so then.
  if (!before.ok() && !absl::IsNotFound(before.status())) return before.status();
  proto::AdminRequest request;
  *request.mutable_load()->mutable_key() = key;
  request.mutable_load()->set_load(load);
  const auto reply = session.Ask(request, load ? "loading" : "unloading", kDeployTimeout);
  if (!reply.ok()) return AsUnfinished(reply.status());
  TROUPE_RETURN_IF_ERROR(before.status());
  if (session.json()) return session.PrintJson(*reply), absl::OkStatus();
  session.out() << DescribeKey(key) << (load ? " is served" : " is no longer served, the registry keeps it")
                << before->WithLoaded(key.version(), load).Since(*before) << '\n';
  return absl::OkStatus();
}
absl::Status FunctionLoad(Session& session, const Arguments& arguments) {
  return SetLoaded(session, arguments, true);
}
absl::Status FunctionUnload(Session& session, const Arguments& arguments) {
  return SetLoaded(session, arguments, false);
}

absl::Status FunctionMove(Session& session, const Arguments& arguments) {
  const auto key = KeyOf(arguments);
  proto::AdminRequest request;
  *request.mutable_move_function()->mutable_key() = key;
  request.mutable_move_function()->set_node(arguments.Text("NODE"));
  TROUPE_ASSIGN_OR_RETURN(const auto reply, session.Ask(request, "moving", kDeployTimeout));
  if (session.json()) return session.PrintJson(reply), absl::OkStatus();
  std::vector<std::string> moved;
  for (const auto& function : reply.functions()) moved.push_back(DescribeKey(function.record().key()));
  session.out() << absl::StrJoin(moved, ", ") << (moved.size() == 1 ? ": its" : ": one model, so their")
                << " state and sequences are on node " << Printable(arguments.Text("NODE")) << " now\n";
  return absl::OkStatus();
}

const Argument kName = {.name = "NAME", .kind = Kind::kFunction, .help = "the function", .required = true};

Argument Version(const char* help) {
  return {.name = "--version", .kind = Kind::kVersion, .help = help};
}

std::vector<Argument> DeployArguments() {
  std::vector<Argument> arguments = {
      kName,
      {.name = "FILE", .kind = Kind::kFile, .help = "the ONNX file, or the folder of one", .required = true},
      {.name = "--deadline", .kind = Kind::kDuration, .help = "target for an answer, like 50ms"},
      {.name = "--percentile", .kind = Kind::kNumber, .help = "requests that are to meet it (98)"},
      {.name = "--tenant", .kind = Kind::kText, .help = "whose function it is"},
      {.name = "--state",
       .kind = Kind::kText,
       .help = "INPUT=OUTPUT: what a run gives as OUTPUT stays on the GPU, and is the next run's INPUT",
       .repeated = true},
      {.name = "--state-replicas",
       .kind = Kind::kNumber,
       .help = "other nodes, 0 (the default) to 3, that have copies of its state and replace its node"},
      {.name = "--isolation",
       .kind = Kind::kText,
       .help = "with whom it shares a GPU worker: shared, tenant, workflow or function; else as nodes say"},
      {.name = "--precision",
       .kind = Kind::kText,
       .help = "of its products and convolutions on a real GPU: fp32 (the default), tf32, bf16, fp16"},
      {.name = "--stage-memory",
       .kind = Kind::kText,
       .help =
           "weights of one stage at most, like 8GiB: a model with more is divided; auto (the default): if no GPU "
           "holds it"},
      {.name = "--run-limit",
       .kind = Kind::kDuration,
       .help = "longest time that one run may have a GPU, like 5s; learned from its runs when absent"}};
  for (auto& argument : SharingArguments()) arguments.push_back(std::move(argument));
  arguments.push_back(Version("the version; the next one when absent"));
  return arguments;
}

}  // namespace

std::vector<Verb> FunctionVerbs() {
  const std::string group = "function";
  return {
      {.group = group,
       .name = "deploy",
       .summary = "Publish an ONNX file as a function, or a new version of one",
       .arguments = DeployArguments(),
       .run = FunctionDeploy},
      {.group = group, .name = "list", .summary = "All functions and where they are", .run = FunctionList},
      {.group = group,
       .name = "show",
       .summary = "One function: inputs, outputs, objective, digests",
       .arguments = {kName, Version("only this version")},
       .run = FunctionShow},
      {.group = group,
       .name = "remove",
       .summary = "Take a version of a function out of the registry",
       .arguments = {kName, Version("only this version; the newest when absent")},
       .run = FunctionRemove},
      {.group = group,
       .name = "load",
       .summary = "Serve a version of a function again",
       .arguments = {kName, Version("only this version; the newest when absent")},
       .run = FunctionLoad},
      {.group = group,
       .name = "unload",
       .summary = "Stop serving a version of a function; the registry keeps it",
       .arguments = {kName, Version("only this version; the newest when absent")},
       .run = FunctionUnload},
      {.group = group,
       .name = "move",
       .summary = "Move a function's state and sequences to another node",
       .arguments = {kName,
                     {.name = "NODE", .kind = Kind::kNode, .help = "the node", .required = true},
                     Version("this version; the newest when absent")},
       .run = FunctionMove},
  };
}

}  // namespace troupe::shell
