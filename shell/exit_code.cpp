#include "shell/exit_code.hpp"

#include "shell/text/cat.hpp"

namespace troupe::shell {

namespace {
constexpr char kMayFinish[] = "; the cluster may still finish what it was asked";
// Codes alone cannot tell the user's error from a refusal: both may be INVALID_ARGUMENT.
constexpr char kUsagePayload[] = "troupe/shell-usage";
constexpr char kInterruptPayload[] = "troupe/shell-interrupt";
}  // namespace

absl::Status UsageError(std::string_view message) {
  absl::Status status = absl::InvalidArgumentError(ForAbsl(message));
  status.SetPayload(kUsagePayload, absl::Cord());
  return status;
}

absl::Status AsUsageError(const absl::Status& status) {
  return status.ok() ? status : UsageError(FromAbsl(status.message()));
}

absl::Status AsUnfinished(const absl::Status& status) {
  if (!absl::IsDeadlineExceeded(status)) return status;
  return absl::DeadlineExceededError(Cat(status.message(), kMayFinish));
}

absl::Status InterruptedError() {
  absl::Status status = absl::CancelledError(Cat("interrupted", kMayFinish));
  status.SetPayload(kInterruptPayload, absl::Cord());
  return status;
}

ExitCode ExitCodeOf(const absl::Status& status) {
  if (status.ok()) return ExitCode::kOk;
  if (status.GetPayload(kUsagePayload)) return ExitCode::kUsage;
  if (status.GetPayload(kInterruptPayload)) return ExitCode::kInterrupted;
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
      return ExitCode::kNotFound;
    case absl::StatusCode::kUnavailable:
      return ExitCode::kUnreachable;
    case absl::StatusCode::kDeadlineExceeded:
      return ExitCode::kTimedOut;
    default:
      return ExitCode::kRefused;
  }
}

}  // namespace troupe::shell
