// `function update`: how a function shares its GPUs, changed while it is served.
#include "absl/strings/str_join.h"
#include "base/status.hpp"
#include "shell/exit_code.hpp"
#include "shell/session.hpp"
#include "shell/sharing_options.hpp"
#include "shell/text/cat.hpp"
#include "shell/verbs/all_verbs.hpp"
#include "shell/views.hpp"

namespace troupe::shell {

namespace {

std::string OptionNames() {
  return absl::StrJoin(SharingArguments(), ", ",
                       [](std::string* out, const Argument& argument) { out->append(argument.name); });
}

absl::Status FunctionUpdate(Session& session, const Arguments& arguments) {
  proto::AdminRequest request;
  auto& update = *request.mutable_update_function();
  update.mutable_key()->set_name(arguments.Text("NAME"));
  update.mutable_key()->set_version(arguments.Text("--version"));
  TROUPE_ASSIGN_OR_RETURN(const auto settings, ReadSharing(arguments, *update.mutable_sharing()));
  if (settings.empty())
    return UsageError(Cat("nothing is to be changed; give at least one of ", OptionNames()));
  *update.mutable_settings() = {settings.begin(), settings.end()};
  TROUPE_ASSIGN_OR_RETURN(const auto reply, session.Ask(request, "updating"));
  if (session.json()) return session.PrintJson(reply), absl::OkStatus();
  for (const auto& function : reply.functions())
    session.out() << DescribeKey(function.record().key()) << ": " << DescribeSettings(function, settings)
                  << '\n';
  return absl::OkStatus();
}

}  // namespace

std::vector<Verb> UpdateVerbs() {
  std::vector<Argument> arguments = {
      {.name = "NAME", .kind = Kind::kFunction, .help = "the function", .required = true},
      {.name = "--version", .kind = Kind::kVersion, .help = "this version; the newest when absent"}};
  for (auto& argument : SharingArguments()) arguments.push_back(std::move(argument));
  return {{.group = "function",
           .name = "update",
           .summary = "Change how a function shares its GPUs while it is served",
           .arguments = std::move(arguments),
           .run = FunctionUpdate}};
}

}  // namespace troupe::shell
