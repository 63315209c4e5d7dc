// `trouped --detach`: the daemon goes on in the background, and the command returns when it serves.
//
//   command --fork--> daemon (own session, output in a log file)
//      | reads a pipe <--- the ready line, or why it could not start ---|
//      +-- prints it and exits: 0, or the daemon's exit code
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace troupe::actors {

// The daemon's end of the pipe. Closing it without a word says that the daemon has ended.
class StartReport {
 public:
  explicit StartReport(int pipe) : pipe_(pipe) {}
  ~StartReport();
  StartReport(StartReport&& other) noexcept;
  StartReport& operator=(StartReport&&) = delete;

  // What the command prints. Once.
  void Ready(const std::string& line);
  void Failed(const std::string& why, int exit_code);

 private:
  void Tell(int exit_code, const std::string& text);
  int pipe_;
};

// Called before the process has threads. Returns in the daemon alone; the command waits and exits. `log` is
// appended to; its directories are made. Errors: the log file cannot be opened (the status of errno), no
// process can be started.
[[nodiscard]] absl::StatusOr<StartReport> Detach(const std::string& log);

}  // namespace troupe::actors
