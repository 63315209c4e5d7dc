// AUDIT LOG: the durable lines of what was changed, and by whom.
//
// FileAuditLog keeps them in DIRECTORY/audit.jsonl (0600) and, as that fills up, audit.1.jsonl (newer) to
// audit.7.jsonl (older): at most `files` times `max_file`, the oldest lines go first.
//   written -> synced (fdatasync; lines that come together share one) -> acknowledged
// Room on the disk is reserved ahead (fallocate). When none can be had, CanTake says so before a change is
// made: nothing is changed that could not be written down. A line that cannot be written all the same is told
// to the log of the daemon, kept in memory, and tried again each second.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "storage/audit_line.hpp"
#include "transport/memory_file.hpp"

namespace troupe::storage {

// Thread-safe. It outlives its writers.
class AuditLog {
 public:
  // OK: the line is durable. An error: it is not yet. Called once, on any thread.
  using Done = std::function<void(absl::Status)>;

  virtual ~AuditLog() = default;
  // OK, or why no change may be made now: it could not be written down.
  [[nodiscard]] virtual absl::Status CanTake() const = 0;
  // Gives the line its number. Never blocks.
  virtual void Append(AuditLine line, Done done) = 0;
};

class FileAuditLog final : public AuditLog {
 public:
  struct Options {
    std::string directory;
    Bytes max_file = MiB(8);
    std::size_t files = 8;
    std::function<void(const std::string&)> say;  // a line for the daemon's log; any thread; may be empty
    Duration retry = std::chrono::seconds(1);
  };

  // Goes on behind the last whole line; half a line at the end was never acknowledged, and is cut off.
  static absl::StatusOr<std::unique_ptr<FileAuditLog>> Open(Options options);
  ~FileAuditLog() override;  // writes what waits, once

  [[nodiscard]] absl::Status CanTake() const override;
  void Append(AuditLine line, Done done) override;

 private:
  struct Waiting {
    std::string text;
    Done done;
  };

  explicit FileAuditLog(Options options) : options_(std::move(options)) {}
  [[nodiscard]] std::string PathOf(std::size_t age) const;
  absl::Status OpenNewest();
  void Work();
  // The next three on the log's thread alone.
  absl::Status Write(const std::string& bytes);
  absl::Status Rotate();
  absl::Status Reserve(std::uint64_t behind);

  const Options options_;
  transport::UniqueFd file_;
  std::uint64_t size_ = 0;      // of the whole lines in `file_`
  std::uint64_t reserved_ = 0;  // up to here there is room on the disk

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::uint64_t next_ = 1;
  std::deque<Waiting> waiting_;
  absl::Status state_;
  bool stopping_ = false;
  std::thread thread_;
};

// The newest lines of a directory that match, oldest first; also while a daemon writes there. Of a change that was
// answered the line of its end alone; a change without an end is told as such. Lines that cannot be read are counted in
// `damaged`. NotFound when there is no log.
[[nodiscard]] absl::StatusOr<std::vector<AuditLine>> ReadAudit(const std::string& directory,
                                                               const AuditQuery& query, std::size_t& damaged);

}  // namespace troupe::storage
