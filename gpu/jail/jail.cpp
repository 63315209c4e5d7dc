#include "gpu/jail/jail.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_join.h"
#include "base/status.hpp"
#include "gpu/jail/landlock.hpp"
#include "gpu/jail/privileges.hpp"

namespace troupe::gpu {
namespace {

void Note(const absl::Status& status, std::vector<std::string>& words) {
  if (!status.ok()) words.emplace_back(status.message());
}

absl::Status SetLimits(const JailLimits& limits) {
  const auto seconds =
      std::max<std::int64_t>(1, std::chrono::ceil<std::chrono::seconds>(limits.time).count());
  const int next = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);  // the lowest that is free
  if (next >= 0) close(next);
  const auto files = static_cast<std::uint64_t>(std::max(next, 0) + limits.open_files);
  TROUPE_RETURN_IF_ERROR(Limit(RLIMIT_CORE, 0, "core dumps"));
  if (!kJailRelaxed) {
    TROUPE_RETURN_IF_ERROR(Limit(RLIMIT_DATA, limits.memory.count(), "memory"));
    TROUPE_RETURN_IF_ERROR(Limit(RLIMIT_AS, (limits.memory + limits.mapped).count(), "address space"));
  }
  if (!kJailRelaxed) TROUPE_RETURN_IF_ERROR(Limit(RLIMIT_NPROC, 0, "processes"));
  TROUPE_RETURN_IF_ERROR(Limit(RLIMIT_CPU, static_cast<std::uint64_t>(seconds), "processor time", 1));
  TROUPE_RETURN_IF_ERROR(Limit(RLIMIT_FSIZE, limits.file_size.count(), "file size"));
  return Limit(RLIMIT_NOFILE, files, "open files");
}

}  // namespace

std::string JailReport::Missing() const {
  return absl::StrJoin(missing, ", ");
}
std::string JailReport::Lacking() const {
  return absl::StrJoin(lacking, ", ");
}

void CloseInherited() {
  (void)syscall(SYS_close_range, 3U, ~0U, 0U);
}

absl::StatusOr<JailReport> EnterImportJail(const JailLimits& limits) {
  JailReport report;
  if (kJailRelaxed) {
    TROUPE_RETURN_IF_ERROR(SetLimits(limits));
    TROUPE_RETURN_IF_ERROR(ForbidNewPrivileges());
    return report;
  }
  // Root enters namespaces with the privileges that it has; a process without them takes those of a user
  // namespace.
  const bool root = geteuid() == 0;
  absl::Status namespaces = root ? EnterEmptyNamespaces(false) : absl::UnavailableError("");
  TROUPE_RETURN_IF_ERROR(SetLimits(limits));
  DropBoundingSet();
  Note(TakeOwnUser(), report.missing);
  if (!namespaces.ok()) namespaces = EnterEmptyNamespaces(true);
  DropBoundingSet();
  Note(DropCapabilities(), report.missing);
  Note(ForbidNewPrivileges(), report.missing);
  const absl::Status paths = RestrictPaths({});
  Note(namespaces, namespaces.ok() || paths.ok() ? report.lacking : report.missing);
  Note(paths, namespaces.ok() || paths.ok() ? report.lacking : report.missing);
  Note(InstallFilter(FilterKind::kImport), report.missing);
  return report;
}

absl::StatusOr<JailReport> EnterWorkerJail(const std::string& folder,
                                           const std::vector<std::string>& readable) {
  JailReport report;
  TROUPE_RETURN_IF_ERROR(Limit(RLIMIT_CORE, 0, "core dumps"));
  if (kJailRelaxed) return report;
  DropBoundingSet();
  Note(DropCapabilities(), report.missing);
  Note(ForbidNewPrivileges(), report.missing);
  Note(RestrictPaths({{folder}, readable}), report.missing);
  Note(InstallFilter(FilterKind::kWorker), report.missing);
  return report;
}

absl::Status GiveUpCapabilities() {
  return kJailRelaxed ? absl::OkStatus() : DropCapabilities();
}

absl::StatusOr<JailReport> EnterDriverJail() {
  JailReport report;
  TROUPE_RETURN_IF_ERROR(Limit(RLIMIT_CORE, 0, "core dumps"));
  if (kJailRelaxed) return report;
  Note(ForbidNewPrivileges(), report.missing);
  Note(InstallFilter(FilterKind::kDriver), report.missing);
  return report;
}

}  // namespace troupe::gpu
