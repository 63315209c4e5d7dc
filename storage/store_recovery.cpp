#include "storage/store_recovery.hpp"

#include <filesystem>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status.hpp"
#include "storage/disk_status.hpp"
#include "storage/durable_file.hpp"
#include "storage/log_scan.hpp"
#include "storage/rocks_database.hpp"

namespace troupe::storage {
namespace {

namespace fs = std::filesystem;
constexpr char kFormatPrefix[] = "troupe-metadata ";

absl::Status Lost(const std::string& directory, const std::string& what) {
  return absl::DataLossError(absl::StrCat("the metadata in ", directory, " are not all there: ", what,
                                          ". Nothing was changed or dropped; restore them from a backup: ",
                                          "troupe store restore --from BACKUP --data DATA"));
}

std::string Place(const LogScan& scan) {
  return absl::StrCat(scan.damaged_file, ", byte ", scan.damaged_at, ": ", scan.damage);
}

// Only where the logs are not whole or end before the mark: the database says which of them count.
absl::StatusOr<RecoveryReport> JudgeClosely(const std::string& directory, RecoveryReport report) {
  TROUPE_ASSIGN_OR_RETURN(const auto database,
                          RocksDatabase::Open(directory + "/db", RocksDatabase::Mode::kReadOnly));
  TROUPE_ASSIGN_OR_RETURN(const LogScan scan, ScanLogs(directory + "/db", database->FirstLog()));
  if (scan.lost()) {
    return Lost(directory, absl::StrCat(Place(scan), "; changes up to number ", scan.proven,
                                        " were acknowledged, those after ", scan.last, " cannot be read"));
  }
  if (database->sequence() < report.mark) {
    return Lost(directory,
                absl::StrCat("changes up to number ", report.mark,
                             " were acknowledged (MARK), and they end with number ", database->sequence(),
                             scan.damaged() ? absl::StrCat(" (", Place(scan), ")") : ""));
  }
  if (scan.damaged()) {
    report.dropped_from = scan.damaged_file;
    report.dropped = scan.unread;
  }
  return report;
}

absl::Status CheckName(const std::string& directory, std::uint64_t expected) {
  const auto name = DatabaseName(directory + "/db");
  if (absl::IsNotFound(name.status())) return Lost(directory, "there is no database in db/");
  if (!name.ok()) return name.status();
  if (*name == expected) return absl::OkStatus();
  return Lost(directory, "the file MARK was written for another database than the one in db/");
}

}  // namespace

std::string RecoveryReport::Line() const {
  if (format == 0) return "metadata: an empty store was made";
  std::string line = absl::StrCat("metadata of format ", format, ": changes up to number ", sequence);
  absl::StrAppend(&line, format == 1 ? std::string(", no mark yet (it was upgraded to format 2)")
                                     : absl::StrCat(", the mark at ", mark));
  if (dropped_from.empty()) {
    absl::StrAppend(&line, ", nothing dropped");
  } else {
    absl::StrAppend(&line, ", a torn last record of ", dropped.count(), " bytes in ", dropped_from,
                    " dropped (it was never acknowledged)");
  }
  return absl::StrCat(line, ", opened in ", FormatDuration(took));
}

absl::StatusOr<StoreMarks> ReadMarks(const std::string& directory) {
  auto text = ReadSmallFile(directory + "/FORMAT", 64);
  if (absl::IsNotFound(text.status())) return StoreMarks{};
  if (!text.ok()) return text.status();
  absl::string_view rest = *text;
  StoreMarks marks;
  if (!absl::ConsumePrefix(&rest, kFormatPrefix) || !absl::SimpleAtoi(rest, &marks.format) ||
      marks.format < 1) {
    return absl::DataLossError(absl::StrCat(
        directory, "/FORMAT does not name a format of Troupe's metadata: ", "is this the right directory?"));
  }
  if (marks.format > kMetadataFormat) {
    return absl::FailedPreconditionError(absl::StrCat(
        "data directory ", directory, " has metadata format ", marks.format, ", this build reads up to ",
        kMetadataFormat, ": use a newer release or choose another directory"));
  }
  if (marks.format == 1) return marks;
  auto mark = CommitMark::Read(directory + "/MARK");
  if (absl::IsNotFound(mark.status())) return Lost(directory, "the file MARK is missing");
  if (absl::IsDataLoss(mark.status())) return Lost(directory, std::string(mark.status().message()));
  if (!mark.ok()) return mark.status();
  marks.mark = *mark;
  return marks;
}

absl::Status WriteFormat(const std::string& directory) {
  return ReplaceFile(directory + "/FORMAT", absl::StrCat(kFormatPrefix, kMetadataFormat, "\n"));
}

absl::Status ClearUnbegun(const std::string& directory) {
  const std::string database = directory + "/db";
  const auto mark = CommitMark::Read(directory + "/MARK");
  if (mark.ok() ? mark->sequence > 0 : !absl::IsNotFound(mark.status())) return absl::OkStatus();
  TROUPE_ASSIGN_OR_RETURN(const LogScan scan, ScanLogs(database));
  if (scan.damaged() || scan.last > 0) return absl::OkStatus();
  std::error_code error;
  for (fs::directory_iterator it(database, error), end; !error && it != end; it.increment(error))
    if (it->path().extension() == ".sst") return absl::OkStatus();
  if (!error) fs::remove_all(database, error);
  return error && error != std::errc::no_such_file_or_directory
             ? DiskError(error.value(), "remove what was begun of", database)
             : absl::OkStatus();
}

absl::StatusOr<RecoveryReport> JudgeStore(const std::string& directory, const StoreMarks& marks) {
  RecoveryReport report;
  report.format = marks.format;
  if (marks.format == 0) return report;  // nothing was ever acknowledged there
  if (marks.mark) {
    report.mark = marks.mark->sequence;
    TROUPE_RETURN_IF_ERROR(CheckName(directory, marks.mark->database));
  }
  TROUPE_ASSIGN_OR_RETURN(const LogScan scan, ScanLogs(directory + "/db"));
  if (scan.damaged() || scan.last < report.mark || !marks.mark)
    return JudgeClosely(directory, std::move(report));
  return report;
}

}  // namespace troupe::storage
