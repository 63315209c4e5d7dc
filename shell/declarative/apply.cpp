#include "shell/declarative/apply.hpp"
#include "shell/declarative/whole_models.hpp"

#include <utility>

#include "absl/strings/str_join.h"
#include "base/status.hpp"
#include "shell/exit_code.hpp"
#include "shell/inputs/external_weights.hpp"
#include "shell/text/cat.hpp"

namespace troupe::shell {

namespace {

constexpr Duration kChangeTimeout = std::chrono::minutes(5);

using ModelPtr = std::shared_ptr<const actors::UploadSource>;

absl::StatusOr<ModelPtr> OpenModelFile(const std::string& path, const Place& place) {
  auto model = OpenModel(path);
  if (!model.ok()) return WrongAt(place, FromAbsl(model.status().message()));
  if ((*model)->size() == 0) return WrongAt(place, Cat("'", path, "' is empty"));
  return model;
}

absl::Status AddDigest(const VersionManifest& version, Present& present) {
  if (version.model.empty() || version.model.starts_with(kByDigest) ||
      present.digests.contains(version.model))
    return absl::OkStatus();
  TROUPE_ASSIGN_OR_RETURN(const auto model, OpenModelFile(version.model, version.model_place));
  TROUPE_ASSIGN_OR_RETURN(const auto digest, actors::DigestOf(*model));
  present.digests.emplace(version.model, digest);
  return absl::OkStatus();
}

absl::Status AddDigests(const Manifests& manifests, Present& present) {
  for (const auto& function : manifests.functions) {
    if (function.only) TROUPE_RETURN_IF_ERROR(AddDigest(*function.only, present));
    for (const auto& [number, version] : function.versions)
      TROUPE_RETURN_IF_ERROR(AddDigest(version, present));
  }
  return absl::OkStatus();
}

absl::Status AskPresent(Session& session, const Manifests& manifests, Present& present) {
  proto::AdminRequest request;
  request.mutable_list_functions();
  TROUPE_ASSIGN_OR_RETURN(present.functions, session.Ask(request));
  request.mutable_list_workflows();
  TROUPE_ASSIGN_OR_RETURN(present.workflows, session.Ask(request));
  const auto in_stages = JoinStages(present.functions, present.workflows);
  for (const auto& workflow : manifests.workflows) {
    request.mutable_read_workflow()->set_yaml(workflow.yaml);
    const auto reply = session.Ask(request, "checking");
    if (absl::IsInvalidArgument(reply.status()))
      return UsageError(Cat(workflow.place.file, ": ", FromAbsl(reply.status().message())));
    TROUPE_RETURN_IF_ERROR(reply.status());
    if (reply->workflows().empty())
      return absl::InternalError("the cluster manager did not read the workflow");
    present.read_workflows.push_back(reply->workflows(0).spec());
    CallAsFunctions(in_stages, present.read_workflows.back());
  }
  return absl::OkStatus();
}

absl::Status MakeChange(Session& session, const PlannedChange& change) {
  auto request = change.request;
  if (!change.model_file.empty()) {
    TROUPE_ASSIGN_OR_RETURN(const auto model, OpenModelFile(change.model_file, change.place));
    TROUPE_ASSIGN_OR_RETURN(const auto digest, actors::DigestOf(*model));
    if (digest != request.deploy().onnx_digest())
      return absl::AbortedError(
          Cat("'", change.model_file, "' has changed since it was compared; apply again"));
    TROUPE_RETURN_IF_ERROR(session.Upload(model, "uploading").status());
  }
  const auto reply = session.Ask(request, "changing", kChangeTimeout);
  if (!reply.ok()) return AsUnfinished(reply.status());
  if (session.json()) return absl::OkStatus();
  session.out() << change.what
                << (change.sign == '-'                                              ? " is removed"
                    : request.has_split_function() || request.has_update_function() ? " is changed"
                                                                                    : " is created");
  if (!reply->message().empty()) session.out() << " (" << Printable(reply->message()) << ")";
  session.out() << std::endl;
  return absl::OkStatus();
}

std::string Names(const std::vector<PlannedChange>& changes, std::size_t begin, std::size_t end) {
  std::vector<std::string> names;
  for (std::size_t i = begin; i < end; ++i) names.push_back(changes[i].what);
  return names.empty() ? "nothing" : absl::StrJoin(names, ", ");
}

absl::Status Stopped(const Plan& plan, std::size_t done, const absl::Status& why) {
  const auto& change = plan.changes[done];
  const auto where = change.place.file.empty() ? "" : Cat(change.place.file, ":", change.place.line, ": ");
  const auto text =
      Cat(where, change.what, ": ", FromAbsl(why.message()), "\ndone: ", Names(plan.changes, 0, done),
          "\nnot done: ", Names(plan.changes, done, plan.changes.size()));
  absl::Status stopped(why.code(), text);
  // Once something was done, this is more than a wrong file.
  if (done == 0)
    why.ForEachPayload(
        [&](absl::string_view type, const absl::Cord& payload) { stopped.SetPayload(type, payload); });
  return stopped;
}

Colour ColourOfSign(char sign) {
  return sign == '+' ? Colour::kGreen : sign == '-' ? Colour::kRed : Colour::kYellow;
}

}  // namespace

absl::StatusOr<Plan> Prepare(Session& session, const std::string& source, Pruning pruning) {
  const auto documents = ReadDocuments(source, session.console());
  if (!documents.ok()) return AsUsageError(documents.status());
  const auto manifests = ParseManifests(*documents);
  if (!manifests.ok()) return AsUsageError(manifests.status());
  Present present;
  if (const auto read = AddDigests(*manifests, present); !read.ok()) return AsUsageError(read);
  TROUPE_RETURN_IF_ERROR(AskPresent(session, *manifests, present));
  auto plan = MakePlan(*manifests, present, pruning);
  if (!plan.ok()) return AsUsageError(plan.status());
  return plan;
}

std::string CountPlan(const Plan& plan) {
  return Cat(plan.changes.size(), plan.changes.size() == 1 ? " change, " : " changes, ",
             plan.unchanged.size(), " unchanged");
}

std::string ShowPlan(const Plan& plan, const Style& style) {
  std::string out;
  for (const auto& change : plan.changes) {
    Append(&out, style.Paint(Cat(std::string(1, change.sign), " ", change.what), ColourOfSign(change.sign)),
           "\n");
    for (const auto& detail : change.details) Append(&out, "    ", Printable(detail), "\n");
  }
  return Cat(out, CountPlan(plan), "\n");
}

absl::Status CarryOut(Session& session, const Plan& plan, std::size_t& done) {
  for (done = 0; done < plan.changes.size(); ++done)
    if (const auto status = MakeChange(session, plan.changes[done]); !status.ok())
      return Stopped(plan, done, status);
  return absl::OkStatus();
}

}  // namespace troupe::shell
