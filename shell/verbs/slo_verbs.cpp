// `slo` and `why`: how functions stand to their SLOs, and what a request waited for.
#include "base/status.hpp"
#include "shell/session.hpp"
#include "shell/verbs/all_verbs.hpp"
#include "shell/views.hpp"

namespace troupe::shell {

namespace {

absl::Status Slo(Session& session, const Arguments& arguments) {
  proto::AdminRequest request;
  auto& key = *request.mutable_show_slo()->mutable_key();
  key.set_name(arguments.Text("NAME"));
  key.set_version(arguments.Text("--version"));
  TROUPE_ASSIGN_OR_RETURN(const auto reply, session.Ask(request));
  if (session.json()) return session.PrintJson(reply), absl::OkStatus();
  if (reply.slos().empty()) {
    session.out() << "no request has ended yet at any gateway that answers\n";
    return absl::OkStatus();
  }
  session.out() << SloTable(reply, arguments.Has("--since-start")).Render(session.style())
                << AlphaLines(reply);
  return absl::OkStatus();
}

absl::Status Why(Session& session, const Arguments& arguments) {
  proto::AdminRequest request;
  request.mutable_explain_request()->set_id(arguments.Text("REQUEST"));
  TROUPE_ASSIGN_OR_RETURN(const auto reply, session.Ask(request));
  if (session.json()) return session.PrintJson(reply), absl::OkStatus();
  if (reply.timelines().empty()) session.out() << "no request has ended in the last minute\n";
  session.out() << StepsChart(reply, arguments.Text("REQUEST"), session.style());
  for (const auto& timeline : reply.timelines())
    session.out() << (&timeline == &reply.timelines(0) ? "" : "\n")
                  << RequestDetails(timeline, session.style());
  return absl::OkStatus();
}

}  // namespace

std::vector<Verb> SloVerbs() {
  return {
      {.name = "slo",
       .summary = "How functions stand to their objectives, and why requests were late",
       .arguments = {{.name = "NAME", .kind = Kind::kFunction, .help = "only this function"},
                     {.name = "--version", .kind = Kind::kVersion, .help = "only this version of it"},
                     {.name = "--since-start",
                      .kind = Kind::kFlag,
                      .help = "since each function's first request, instead of the last hour"}},
       .run = Slo},
      {.name = "why",
       .summary =
           "What a request or the steps of a run spent their time on, or the slowest of the last minute",
       .arguments = {{.name = "REQUEST", .help = "the id that its client gave it, or a run of a workflow"}},
       .run = Why},
  };
}

}  // namespace troupe::shell
