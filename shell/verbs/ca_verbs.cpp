// `ca`: the cluster's certificate authority, a folder on an operator's machine. Asks no cluster.
#include <cstdlib>

#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/status.hpp"
#include "security/authority_folder.hpp"
#include "shell/exit_code.hpp"
#include "shell/session.hpp"
#include "shell/text/cat.hpp"
#include "shell/verbs/all_verbs.hpp"
#include "shell/views.hpp"

namespace troupe::shell {

namespace {

constexpr double kAuthorityDays = 3650;
constexpr double kCertificateDays = 365;
// The clock of another machine may be a little behind.
constexpr absl::Duration kAllowance = absl::Minutes(5);

const Argument kFolderOption = {.name = "--ca",
                                .help = "folder of the certificate authority (env TROUPE_CA; troupe-ca)"};
const Argument kDaysOption = {.name = "--days", .kind = Kind::kNumber, .help = "how long it is good (365)"};

std::string FolderOf(const Arguments& arguments, const std::string& argument) {
  if (arguments.Has(argument)) return arguments.Text(argument);
  const char* named = std::getenv("TROUPE_CA");
  return named != nullptr && *named != '\0' ? named : "troupe-ca";
}

absl::StatusOr<absl::Duration> DaysOf(const Arguments& arguments, double otherwise) {
  const double days = arguments.NumberOr("--days", otherwise);
  if (days > 0 && days <= 36500) return absl::Hours(24) * days;
  return UsageError("--days: a certificate is good for more than 0 and at most 36500 days");
}

std::string Until(absl::Time time) {
  return security::TimeText(time);
}

void SayIssued(Session& session, const security::IssuedEntry& entry, const std::string& out) {
  session.out() << "issued " << entry.identity.ToString() << ", good until " << Until(entry.not_after)
                << ", to " << Printable(out) << "; use it with --tls-dir " << Printable(out) << '\n';
}

absl::Status CaInit(Session& session, const Arguments& arguments) {
  const auto folder = FolderOf(arguments, "DIR");
  TROUPE_ASSIGN_OR_RETURN(const auto validity, DaysOf(arguments, kAuthorityDays));
  TROUPE_RETURN_IF_ERROR(security::AuthorityFolder::Init(folder, "troupe", absl::Now(), validity));
  session.out() << "made a certificate authority in " << Printable(folder)
                << "; a reader of its ca-key.pem can join the cluster as anything\n";
  return absl::OkStatus();
}

absl::Status CaIssue(Session& session, const Arguments& arguments) {
  TROUPE_ASSIGN_OR_RETURN(const auto validity, DaysOf(arguments, kCertificateDays));
  security::CertificateRequest request;
  for (const auto& text : arguments.All("--role")) {
    const auto role = security::ParseRole(text);
    if (!role.ok()) return AsUsageError(role.status());
    request.roles.Add(*role);
  }
  request.name = arguments.Text("NAME");
  request.hosts = arguments.All("--host");
  const bool listens =
      request.roles.HasAny({security::Role::kManager, security::Role::kGateway, security::Role::kNode});
  if (listens && request.hosts.empty())
    return UsageError(
        "a daemon's certificate names the hosts under which it is dialled: --host NAME or --host ADDRESS, as "
        "in its --listen and --manager");
  request.not_before = absl::Now() - kAllowance;
  request.not_after = absl::Now() + validity;
  const auto out = arguments.Has("--out") ? arguments.Text("--out") : request.name;
  TROUPE_ASSIGN_OR_RETURN(auto folder, security::AuthorityFolder::Open(FolderOf(arguments, "--ca")));
  const auto entry = folder.Issue(request, out);
  if (absl::IsInvalidArgument(entry.status())) return AsUsageError(entry.status());
  TROUPE_RETURN_IF_ERROR(entry.status());
  SayIssued(session, *entry, out);
  return absl::OkStatus();
}

absl::Status CaRenew(Session& session, const Arguments& arguments) {
  TROUPE_ASSIGN_OR_RETURN(const auto validity, DaysOf(arguments, kCertificateDays));
  const auto name = arguments.Text("NAME");
  const auto out = arguments.Has("--out") ? arguments.Text("--out") : name;
  TROUPE_ASSIGN_OR_RETURN(auto folder, security::AuthorityFolder::Open(FolderOf(arguments, "--ca")));
  TROUPE_ASSIGN_OR_RETURN(const auto entry, folder.Renew(name, absl::Now(), validity, out));
  SayIssued(session, entry, out);
  return absl::OkStatus();
}

absl::Status CaRevoke(Session& session, const Arguments& arguments) {
  TROUPE_ASSIGN_OR_RETURN(auto folder, security::AuthorityFolder::Open(FolderOf(arguments, "--ca")));
  TROUPE_ASSIGN_OR_RETURN(const auto revoked, folder.Revoke(arguments.Text("WHICH"), absl::Now()));
  for (const auto& entry : revoked) session.out() << "revoked " << entry.identity.ToString() << '\n';
  if (revoked.empty()) session.out() << "it was revoked before\n";
  session.out() << "copy " << Printable(folder.revocations_path())
                << " into the --tls-dir of every daemon: they refuse it within seconds\n";
  return absl::OkStatus();
}

absl::Status CaList(Session& session, const Arguments& arguments) {
  TROUPE_ASSIGN_OR_RETURN(const auto folder, security::AuthorityFolder::Open(FolderOf(arguments, "--ca")));
  if (folder.issued().empty()) {
    session.out() << "no certificates; issue one with: troupe ca issue --role node NAME --host HOST\n";
    return absl::OkStatus();
  }
  Table table({"NAME", "ROLES", "STATE", "UNTIL", "HOSTS", "SERIAL"});
  const auto now = absl::Now();
  for (const auto& entry : folder.issued()) {
    const std::string state = entry.is_revoked() ? "revoked" : entry.not_after <= now ? "expired" : "good";
    table.Add({entry.identity.name, entry.identity.roles.ToString(), state, Until(entry.not_after),
               absl::StrJoin(entry.hosts, ","), entry.identity.serial});
  }
  session.out() << table.Render(session.style());
  return absl::OkStatus();
}

}  // namespace

std::vector<Verb> CaVerbs() {
  const Argument name = {.name = "NAME", .help = "of the member, or of the person", .required = true};
  const Argument out = {.name = "--out", .help = "folder for the certificate and its key (NAME)"};
  return {
      {.group = "ca",
       .name = "init",
       .summary = "Make a certificate authority: a folder on an operator's machine",
       .arguments = {{.name = "DIR", .help = "the folder (env TROUPE_CA; troupe-ca)"},
                     {.name = "--days", .kind = Kind::kNumber, .help = "how long it is good (3650)"}},
       .run = CaInit},
      {.group = "ca",
       .name = "issue",
       .summary = "Issue a certificate to a daemon or a person",
       .arguments = {{.name = "--role",
                      .help = "manager, gateway, node, admin (may change the cluster) or reader; repeatable",
                      .required = true,
                      .repeated = true},
                     name,
                     {.name = "--host",
                      .help = "DNS name or address under which a daemon is dialled; repeatable",
                      .repeated = true},
                     out,
                     kDaysOption,
                     kFolderOption},
       .run = CaIssue},
      {.group = "ca",
       .name = "renew",
       .summary = "Issue a certificate once more, with the same name, roles and hosts",
       .arguments = {name, out, kDaysOption, kFolderOption},
       .run = CaRenew},
      {.group = "ca",
       .name = "revoke",
       .summary = "Revoke a certificate, by its serial or its holder's name",
       .arguments = {{.name = "WHICH",
                      .help = "a serial, or a name: all of its certificates",
                      .required = true},
                     kFolderOption},
       .run = CaRevoke},
      {.group = "ca",
       .name = "list",
       .summary = "The certificates that were issued",
       .arguments = {kFolderOption},
       .run = CaList},
  };
}

}  // namespace troupe::shell
