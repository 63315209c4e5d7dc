// `key`: API keys of HTTP clients.
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "base/status.hpp"
#include "security/api_keys.hpp"
#include "shell/exit_code.hpp"
#include "shell/session.hpp"
#include "shell/text/cat.hpp"
#include "shell/verbs/all_verbs.hpp"
#include "shell/views.hpp"

namespace troupe::shell {

namespace {

std::string ScopesOf(const proto::ApiKeyRecord& key) {
  std::string out;
  for (const auto scope : key.scopes()) {
    if (!out.empty()) out += ",";
    out += security::ScopeName(static_cast<proto::KeyScope>(scope));
  }
  return out;
}

absl::Status KeyCreate(Session& session, const Arguments& arguments) {
  proto::AdminRequest request;
  auto& create = *request.mutable_create_key();
  create.set_name(arguments.Text("NAME"));
  for (const auto& text : arguments.All("--scope")) {
    for (const std::string& word : std::vector<std::string>(absl::StrSplit(text, ','))) {
      const auto scope = security::ParseScope(word);
      if (!scope.ok()) return AsUsageError(scope.status());
      create.add_scopes(*scope);
    }
  }
  TROUPE_ASSIGN_OR_RETURN(const auto reply, session.Ask(request, "creating"));
  if (session.json()) return session.PrintJson(reply), absl::OkStatus();
  session.out() << reply.secret() << '\n';
  session.console().err()
      << "this is the key '" << Printable(arguments.Text("NAME")) << "' ("
      << (reply.keys().empty() ? "" : ScopesOf(reply.keys(0)))
      << "); it is shown this once and kept nowhere. Clients send: Authorization: Bearer KEY\n";
  return absl::OkStatus();
}

absl::Status KeyList(Session& session, const Arguments&) {
  proto::AdminRequest request;
  request.mutable_list_keys();
  TROUPE_ASSIGN_OR_RETURN(const auto reply, session.Ask(request));
  if (session.json()) return session.PrintJson(reply), absl::OkStatus();
  if (reply.keys().empty()) {
    session.out()
        << "no keys: gateways answer HTTP clients on their own machines, and no others; make one with: "
           "troupe key create NAME --scope infer,read\n";
    return absl::OkStatus();
  }
  Table table({"NAME", "SCOPES", "CREATED"});
  for (const auto& key : reply.keys()) {
    const auto created = absl::FromUnixNanos(key.created_unix_ns());
    table.Add(
        {key.name(), ScopesOf(key), absl::FormatTime("%Y-%m-%d %H:%M:%S", created, absl::LocalTimeZone())});
  }
  session.out() << table.Render(session.style());
  return absl::OkStatus();
}

absl::Status KeyRevoke(Session& session, const Arguments& arguments) {
  proto::AdminRequest request;
  request.mutable_revoke_key()->set_name(arguments.Text("NAME"));
  TROUPE_ASSIGN_OR_RETURN(const auto reply, session.Ask(request, "revoking"));
  if (session.json()) return session.PrintJson(reply), absl::OkStatus();
  session.out() << "the key '" << Printable(arguments.Text("NAME")) << "' is revoked: gateways refuse it\n";
  return absl::OkStatus();
}

}  // namespace

std::vector<Verb> KeyVerbs() {
  return {
      {.group = "key",
       .name = "create",
       .summary = "Make an API key for HTTP clients, and show it this once",
       .arguments = {{.name = "NAME", .help = "whose key it is, for lists and the audit", .required = true},
                     {.name = "--scope",
                      .help = "what it allows: infer, deploy, read, admin (all); several with commas",
                      .required = true,
                      .repeated = true}},
       .run = KeyCreate},
      {.group = "key", .name = "list", .summary = "The API keys, without their texts", .run = KeyList},
      {.group = "key",
       .name = "revoke",
       .summary = "Refuse an API key from now on",
       .arguments = {{.name = "NAME", .help = "as it was given when the key was made", .required = true}},
       .run = KeyRevoke},
  };
}

}  // namespace troupe::shell
