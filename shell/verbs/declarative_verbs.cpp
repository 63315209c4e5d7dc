// `apply`, `diff`, `export`: functions and workflows as files say.
#include <boost/json.hpp>

#include "absl/strings/ascii.h"
#include "base/status.hpp"
#include "shell/declarative/apply.hpp"
#include "shell/declarative/export.hpp"
#include "shell/declarative/whole_models.hpp"
#include "shell/exit_code.hpp"
#include "shell/text/cat.hpp"
#include "shell/verbs/all_verbs.hpp"

namespace troupe::shell {

namespace {

Pruning PruningOf(const Arguments& arguments) {
  return arguments.Has("--prune") ? Pruning::kRemove : Pruning::kKeep;
}

void PrintPlanJson(Session& session, const Plan& plan, std::size_t done) {
  boost::json::array changes;
  for (std::size_t i = 0; i < plan.changes.size(); ++i) {
    const auto& change = plan.changes[i];
    changes.push_back(boost::json::object{{"sign", std::string(1, change.sign)},
                                          {"what", change.what},
                                          {"details", boost::json::value_from(change.details)},
                                          {"done", i < done}});
  }
  const boost::json::object all = {{"changes", std::move(changes)},
                                   {"unchanged", boost::json::value_from(plan.unchanged)}};
  session.out() << boost::json::serialize(all) << '\n';
}

bool Removes(const Plan& plan) {
  for (const auto& change : plan.changes)
    if (change.sign == '-') return true;
  return false;
}

bool MayRemove(Session& session) {
  auto& console = session.console();
  console.err() << "Remove what no file names from the cluster at " << session.options().manager << "? [y/N] "
                << std::flush;
  std::string answer;
  if (!console.ReadLine(answer)) console.err() << '\n';
  answer = absl::AsciiStrToLower(absl::StripAsciiWhitespace(answer));
  return answer == "y" || answer == "yes";
}

absl::Status Apply(Session& session, const Arguments& arguments) {
  TROUPE_ASSIGN_OR_RETURN(const auto plan, Prepare(session, arguments.Text("-f"), PruningOf(arguments)));
  if (!session.json()) session.out() << ShowPlan(plan, session.style()) << std::flush;
  if (arguments.Has("--dry-run")) {
    if (session.json()) PrintPlanJson(session, plan, 0);
    return absl::OkStatus();
  }
  if (Removes(plan) && !arguments.Has("--yes") && !MayRemove(session))
    return absl::AbortedError("not confirmed; nothing was changed (say y, or give --yes)");
  std::size_t done = 0;
  const auto end = CarryOut(session, plan, done);
  if (session.json()) {
    PrintPlanJson(session, plan, done);
  } else if (end.ok() && !plan.changes.empty()) {
    session.out() << "done: " << CountPlan(plan) << '\n';
  }
  return end;
}

absl::Status Diff(Session& session, const Arguments& arguments) {
  TROUPE_ASSIGN_OR_RETURN(const auto plan, Prepare(session, arguments.Text("-f"), PruningOf(arguments)));
  session.json() ? PrintPlanJson(session, plan, 0)
                 : static_cast<void>(session.out() << ShowPlan(plan, session.style()) << std::flush);
  if (plan.changes.empty()) return absl::OkStatus();
  return absl::AbortedError(Cat("the cluster is not as the files say: ", CountPlan(plan)));
}

absl::Status Export(Session& session, const Arguments& arguments) {
  if (session.json())
    return UsageError(
        "an export is YAML, which 'troupe apply' reads; leave out --json, or ask 'function list --json' and "
        "'workflow list --json'");
  proto::AdminRequest request;
  request.mutable_list_functions();
  TROUPE_ASSIGN_OR_RETURN(auto functions, session.Ask(request));
  request.mutable_list_workflows();
  TROUPE_ASSIGN_OR_RETURN(auto workflows, session.Ask(request));
  JoinStages(functions, workflows);
  TROUPE_ASSIGN_OR_RETURN(const auto yaml, ExportYaml(functions, workflows, arguments.All("NAME")));
  session.out() << yaml;
  return absl::OkStatus();
}

const Argument kSource = {.name = "-f",
                          .kind = Kind::kFile,
                          .help = "a YAML file, a directory of them, or - for standard input",
                          .required = true};
const Argument kPrune = {
    .name = "--prune", .kind = Kind::kFlag, .help = "also remove functions and workflows that no file names"};

}  // namespace

std::vector<Verb> DeclarativeVerbs() {
  return {
      {.name = "apply",
       .summary = "Make functions and workflows be as YAML files say",
       .arguments = {kSource,
                     {.name = "--dry-run", .kind = Kind::kFlag, .help = "show the changes and make none"},
                     kPrune,
                     {.name = "--yes",
                      .kind = Kind::kFlag,
                      .help = "do not ask before something is removed"}},
       .run = Apply},
      {.name = "diff",
       .summary = "What apply would change; ends with 1 when there is something",
       .arguments = {kSource, kPrune},
       .run = Diff},
      {.name = "export",
       .summary = "Functions and workflows of the cluster, as the YAML that apply reads",
       .arguments = {{.name = "NAME", .kind = Kind::kServable, .help = "only this one", .repeated = true}},
       .run = Export},
  };
}

}  // namespace troupe::shell
