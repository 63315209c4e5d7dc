// `function canary`, `function promote`, `function rollback`, `function follow`: which versions of a function get the
// requests that name none.
#include "absl/strings/str_join.h"
#include "base/status.hpp"
#include "shell/declarative/yaml_map.hpp"
#include "shell/exit_code.hpp"
#include "shell/session.hpp"
#include "shell/text/cat.hpp"
#include "shell/verbs/all_verbs.hpp"

namespace troupe::shell {

namespace {

absl::Status AskSplit(Session& session, const proto::SplitFunction& wish) {
  proto::AdminRequest request;
  *request.mutable_split_function() = wish;
  TROUPE_ASSIGN_OR_RETURN(const auto reply, session.Ask(request, "changing"));
  if (session.json()) return session.PrintJson(reply), absl::OkStatus();
  std::vector<std::string> shares;
  for (const auto& function : reply.functions())
    if (const auto& record = function.record(); record.share_percent() > 0)
      shares.push_back(
          Cat("version ", Printable(record.key().version()), " gets ", record.share_percent(), " %"));
  session.out() << Printable(wish.name()) << ": "
                << (shares.empty() ? "the newest version gets all requests" : absl::StrJoin(shares, ", "))
                << '\n';
  return absl::OkStatus();
}

absl::Status FunctionCanary(Session& session, const Arguments& arguments) {
  proto::SplitFunction wish;
  wish.set_name(arguments.Text("NAME"));
  std::uint32_t percent = 0;
  if (!ParsePercent(arguments.Text("--weight"), 1, percent) || percent == 100)
    return UsageError(Cat("--weight is '", arguments.Text("--weight"),
                          "'; it is a whole number of percent from 1 to 99, like 10%"));
  wish.mutable_canary()->set_version(arguments.Text("--version"));
  wish.mutable_canary()->set_percent(percent);
  return AskSplit(session, wish);
}

absl::Status FunctionPromote(Session& session, const Arguments& arguments) {
  proto::SplitFunction wish;
  wish.set_name(arguments.Text("NAME"));
  wish.set_promote(arguments.Text("--version"));
  return AskSplit(session, wish);
}

absl::Status FunctionRollback(Session& session, const Arguments& arguments) {
  proto::SplitFunction wish;
  wish.set_name(arguments.Text("NAME"));
  wish.set_roll_back(true);
  return AskSplit(session, wish);
}

absl::Status FunctionFollow(Session& session, const Arguments& arguments) {
  proto::SplitFunction wish;
  wish.set_name(arguments.Text("NAME"));
  wish.mutable_shares();
  return AskSplit(session, wish);
}

const Argument kSplitName = {
    .name = "NAME", .kind = Kind::kFunction, .help = "the function", .required = true};

}  // namespace

std::vector<Verb> SplitVerbs() {
  const std::string group = "function";
  return {
      {.group = group,
       .name = "canary",
       .summary = "Give a version a part of the requests that name no version",
       .arguments = {kSplitName,
                     {.name = "--version", .kind = Kind::kVersion, .help = "the canary", .required = true},
                     {.name = "--weight",
                      .kind = Kind::kText,
                      .help = "its part in percent, like 10%; the stable version gets the rest",
                      .required = true}},
       .run = FunctionCanary},
      {.group = group,
       .name = "promote",
       .summary = "Give a version all requests that name no version",
       .arguments = {kSplitName,
                     {.name = "--version", .kind = Kind::kVersion, .help = "the canary when absent"}},
       .run = FunctionPromote},
      {.group = group,
       .name = "rollback",
       .summary = "End a canary; without one, return to the version that was stable before",
       .arguments = {kSplitName},
       .run = FunctionRollback},
      {.group = group,
       .name = "follow",
       .summary = "Let the newest version get all requests again, as before the first canary",
       .arguments = {kSplitName},
       .run = FunctionFollow},
  };
}

}  // namespace troupe::shell
