// troupe-store: `troupe store check|dump|backup|restore`, on a data directory that no manager has open, and
// `troupe audit`, which reads also beside a running daemon.
// Exit codes: 0 done and whole, 1 damaged or refused, 2 a wrong command, 3 no such store or backup.
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status.hpp"
#include "storage/audit_log.hpp"
#include "storage/backup.hpp"
#include "storage/store_check.hpp"

namespace {

using namespace troupe;
using namespace troupe::storage;

enum Exit : int { kDone = 0, kRefused = 1, kUsage = 2, kNotFound = 3 };

constexpr char kExitCodes[] =
    "Exit codes:\n"
    "  0  done, and all is whole\n"
    "  1  something is damaged, or it was refused\n"
    "  2  the command or an argument is wrong\n"
    "  3  there is no such store or backup\n";

int Fail(const absl::Status& status, const char* command = "troupe store") {
  std::fprintf(stderr, "%s: %s\n", command, std::string(status.message()).c_str());
  if (absl::IsNotFound(status)) return kNotFound;
  return absl::IsInvalidArgument(status) ? kUsage : kRefused;
}

void Say(const std::string& line) {
  std::printf("%s\n", line.c_str());
}

int CheckData(const std::string& data) {
  const auto report = CheckStore(data);
  if (!report.ok()) return Fail(report.status());
  std::string records;
  for (const auto& [table, count] : report->records)
    absl::StrAppend(&records, records.empty() ? "" : ", ", count, " in ", TableName(table));
  Say(absl::StrCat("records: ", records.empty() ? "none" : records));
  Say(absl::StrCat("models: ", report->models, " objects, ", FormatBytes(report->model_bytes)));
  if (!report->recovery.dropped_from.empty())
    Say(absl::StrCat("the last record in ", report->recovery.dropped_from, " is torn (",
                     report->recovery.dropped.count(),
                     " bytes) and was never acknowledged: a manager drops it when it starts"));
  for (const auto& problem : report->problems) std::fprintf(stderr, "damaged: %s\n", problem.c_str());
  Say(report->problems.empty() ? absl::StrCat("whole: changes up to number ", report->recovery.sequence)
                               : absl::StrCat("not whole: ", report->problems.size(), " problems"));
  return report->problems.empty() ? kDone : kRefused;
}

int DumpData(const std::string& data, const std::string& table, const std::string& prefix) {
  std::optional<Table> only;
  if (!table.empty()) {
    const auto found = FindTable(table);
    if (!found.ok()) return Fail(found.status());
    only = *found;
  }
  const auto status = DumpStore(data, only, prefix, Say);
  return status.ok() ? kDone : Fail(status);
}

int BackUp(const std::string& data, const std::string& to) {
  // An opening would make what is not there.
  if (const auto marks = ReadMarks(data + "/metadata"); !marks.ok())
    return Fail(marks.status());
  else if (marks->format == 0)
    return Fail(absl::NotFoundError(absl::StrCat("there are no metadata of Troupe's in ", data)));
  const auto store = RocksMetadataStore::Open(data + "/metadata");
  if (absl::IsFailedPrecondition(store.status())) {
    return Fail(absl::FailedPreconditionError(absl::StrCat(store.status().message(),
                                                           "; a running manager makes a backup in ", data,
                                                           "/backups when it gets SIGUSR1")));
  }
  if (!store.ok()) return Fail(store.status());
  const auto report = MakeBackup(**store, data, to);
  if (!report.ok()) return Fail(report.status());
  Say(report->Line(to));
  for (const auto& digest : report->left_out) std::fprintf(stderr, "damaged: object %s\n", digest.c_str());
  return report->left_out.empty() ? kDone : kRefused;
}

int Restore(const std::string& from, const std::string& data, bool other_cluster) {
  const auto report = RestoreBackup(from, data, other_cluster);
  if (!report.ok()) return Fail(report.status());
  Say(report->Line(data));
  return kDone;
}

// As the file has them, or as a table for people.
int ShowAudit(const std::string& data, const AuditQuery& query, bool as_json) {
  std::size_t damaged = 0;
  const auto lines = ReadAudit(data + "/audit", query, damaged);
  if (absl::IsNotFound(lines.status()))
    return Fail(absl::NotFoundError(absl::StrCat("there is no audit in ", data,
                                                 ": --data is the data directory of a daemon, such as "
                                                 "/var/lib/troupe/manager")),
                "troupe audit");
  if (!lines.ok()) return Fail(lines.status(), "troupe audit");
  for (const auto& line : *lines) {
    if (as_json) {
      std::fputs(FormatAuditLine(line).c_str(), stdout);
      continue;
    }
    auto text = absl::StrCat(
        absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixNanos(line.unix_ns), absl::UTCTimeZone()), "  ",
        line.who, line.from.empty() ? "" : " from ", line.from, line.via.empty() ? "" : " via ", line.via,
        "  ", line.action, "  ", line.what, "  ", line.result);
    if (!line.message.empty()) absl::StrAppend(&text, ": ", line.message);
    Say(text);
  }
  if (damaged > 0) std::fprintf(stderr, "%zu lines of the audit cannot be read\n", damaged);
  return damaged == 0 ? kDone : kRefused;
}

}  // namespace

int main(int argc, char** argv) {
  spdlog::set_default_logger(spdlog::stderr_logger_mt("troupe store"));  // standard output is the records'
  CLI::App app("A manager's data directory, while no manager has it open", "troupe");
  app.require_subcommand(1);
  app.footer(kExitCodes);
  auto* store = app.add_subcommand("store", "Checks, shows, backs up and restores what a manager keeps");
  store->require_subcommand(1);
  store->footer(kExitCodes);
  std::string data, table, prefix, to, from;
  bool other_cluster = false;
  const auto verb = [&](const char* name, const char* what) {
    auto* sub = store->add_subcommand(name, what);
    sub->footer(kExitCodes);
    sub->add_option("--data", data, "the manager's data directory (trouped --data)")->required();
    return sub;
  };
  auto* check = verb("check", "Reads all of it, and names what is damaged; a backup too");
  auto* dump = verb("dump", "The records as JSON, one per line; of a backup too");
  dump->add_option("--table", table, "only this table");
  dump->add_option("--prefix", prefix, "only keys that begin so");
  auto* backup = verb("backup", "Copies metadata and models, complete or not at all");
  backup->add_option("--to", to, "the backup's directory, which is made")->required();
  auto* restore =
      verb("restore", "Puts a backup in the place of the metadata that are there, which are kept beside it");
  restore->add_option("--from", from, "a backup")->required();
  restore->add_flag("--other-cluster", other_cluster, "although the directory belongs to another cluster");
  auto* audit =
      app.add_subcommand("audit", "Who changed what: the newest lines of a daemon's audit, oldest first");
  AuditQuery query;
  bool as_json = false;
  audit->add_option("--data", data, "the daemon's data directory (trouped --data)")->required();
  audit->add_option("--last", query.last, "so many lines")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  audit->add_option("--who", query.who, "only of this caller: key/ci, user/1000; or of this kind: key");
  audit->add_option("--what", query.what, "only where this is in the action or in what it was done to");
  audit->add_flag("--json", as_json, "the lines as they are kept");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kDone : kUsage;
  }
  if (audit->parsed()) return ShowAudit(data, query, as_json);
  if (check->parsed()) return CheckData(data);
  if (dump->parsed()) return DumpData(data, table, prefix);
  if (backup->parsed()) return BackUp(data, to);
  return Restore(from, data, other_cluster);
}
