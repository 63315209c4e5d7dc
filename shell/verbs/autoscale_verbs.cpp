// `autoscale`: how functions follow their load.
#include "base/status.hpp"
#include "shell/session.hpp"
#include "shell/verbs/all_verbs.hpp"
#include "shell/views.hpp"

namespace troupe::shell {

namespace {

absl::Status Status(Session& session, const Arguments& arguments) {
  proto::AdminRequest request;
  auto& key = *request.mutable_show_scaling()->mutable_key();
  key.set_name(arguments.Text("NAME"));
  key.set_version(arguments.Text("--version"));
  TROUPE_ASSIGN_OR_RETURN(const auto reply, session.Ask(request));
  if (session.json()) return session.PrintJson(reply), absl::OkStatus();
  session.out() << ScalingDetails(reply.scaling(), session.style());
  return absl::OkStatus();
}

}  // namespace

std::vector<Verb> AutoscaleVerbs() {
  return {
      {.group = "autoscale",
       .name = "status",
       .summary = "How a function's part of the GPUs follows its load, and the latest ten decisions",
       .arguments = {{.name = "NAME",
                      .kind = Kind::kFunction,
                      .help = "a function whose quota_request is auto",
                      .required = true},
                     {.name = "--version", .kind = Kind::kVersion, .help = "default: the newest"}},
       .run = Status},
  };
}

}  // namespace troupe::shell
