#include "storage/audit_log.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "storage/disk_status.hpp"
#include "storage/durable_file.hpp"

namespace troupe::storage {

namespace {

// Lines of changes that are under way, when the next one is asked whether it fits: 64 of the usual length.
constexpr std::uint64_t kSpare = 64 * 1024;
constexpr std::uint64_t kReserveStep = 256 * 1024;
constexpr std::size_t kMostWaiting = 4096;  // beyond it lines are in the daemon's log only
constexpr std::size_t kMostFiles = 100;     // that a reader looks for

std::string FileName(const std::string& directory, std::size_t age) {
  return age == 0 ? directory + "/audit.jsonl" : absl::StrCat(directory, "/audit.", age, ".jsonl");
}

// The number of the newest line that can be read; 0: none can.
std::uint64_t LastNumber(std::string_view text) {
  while (!text.empty()) {
    if (text.back() == '\n') text.remove_suffix(1);
    const auto begin = text.rfind('\n') + 1;  // npos + 1 is 0
    const auto line = ParseAuditLine(text.substr(begin));
    if (line.ok()) return line->number;
    text = text.substr(0, begin);
  }
  return 0;
}

absl::StatusOr<std::string> WholeFile(const std::string& path) {
  TROUPE_ASSIGN_OR_RETURN(const transport::UniqueFd file, OpenFile(path, O_RDONLY));
  std::string text;
  std::vector<char> piece(64 * 1024);
  while (true) {
    const auto got = ::read(file.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return DiskError(errno, "read", path);
    if (got == 0) return text;
    text.append(piece.data(), static_cast<std::size_t>(got));
  }
}

}  // namespace

std::string FileAuditLog::PathOf(std::size_t age) const {
  return FileName(options_.directory, age);
}

absl::StatusOr<std::unique_ptr<FileAuditLog>> FileAuditLog::Open(Options options) {
  std::unique_ptr<FileAuditLog> made(new FileAuditLog(std::move(options)));
  TROUPE_RETURN_IF_ERROR(MakeDirectories(made->options_.directory));
  TROUPE_RETURN_IF_ERROR(made->OpenNewest());
  made->state_ = made->Reserve(made->size_ + kSpare);
  made->thread_ = std::thread([log = made.get()] { log->Work(); });
  return made;
}

absl::Status FileAuditLog::OpenNewest() {
  TROUPE_ASSIGN_OR_RETURN(file_, OpenFile(PathOf(0), O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW, 0600));
  TROUPE_RETURN_IF_ERROR(SyncDirectory(options_.directory));
  TROUPE_ASSIGN_OR_RETURN(const auto text, WholeFile(PathOf(0)));
  size_ = text.rfind('\n') + 1;
  if (size_ < text.size() && ::ftruncate(file_.get(), static_cast<off_t>(size_)) != 0)
    return DiskError(errno, "cut the half line off", PathOf(0));
  auto last = LastNumber(std::string_view(text).substr(0, size_));
  for (std::size_t age = 1; last == 0 && age < options_.files; ++age)
    if (const auto older = WholeFile(PathOf(age)); older.ok()) last = LastNumber(*older);
  next_ = last + 1;
  return absl::OkStatus();
}

FileAuditLog::~FileAuditLog() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

absl::Status FileAuditLog::CanTake() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

void FileAuditLog::Append(AuditLine line, Done done) {
  std::unique_lock lock(mutex_);
  line.number = next_++;
  auto text = FormatAuditLine(line);
  if (waiting_.size() < kMostWaiting) {
    waiting_.push_back({std::move(text), std::move(done)});
    lock.unlock();
    wake_.notify_all();
    return;
  }
  lock.unlock();
  if (options_.say)
    options_.say(absl::StrCat("too many lines of the audit wait, and this one is lost: ", text));
  done(absl::ResourceExhaustedError("too many lines of the audit wait to be written"));
}

void FileAuditLog::Work() {
  std::unique_lock lock(mutex_);
  bool failed = false;
  while (true) {
    const auto has_work = [this] { return stopping_ || !waiting_.empty(); };
    // After a failure the lines wait for a while, and later lines wait behind them.
    if (failed) {
      wake_.wait_for(lock, options_.retry, [this] { return stopping_; });
    } else if (!state_.ok()) {
      wake_.wait_for(lock, options_.retry, has_work);
    } else {
      wake_.wait(lock, has_work);
    }
    const bool last = stopping_;
    std::string bytes;
    const std::size_t count = waiting_.size();
    for (const auto& line : waiting_) bytes += line.text;
    lock.unlock();
    const auto written = bytes.empty() ? absl::OkStatus() : Write(bytes);
    auto room = written.ok() ? Reserve(size_ + kSpare) : written;
    if (!written.ok() && options_.say)
      options_.say(absl::StrCat("lines of the audit are not on the disk yet (",
                                std::string(written.message()), "), and are tried again: ", bytes));
    lock.lock();
    std::vector<Done> heard;
    for (std::size_t i = 0; i < count; ++i)
      if (waiting_[i].done) heard.push_back(std::exchange(waiting_[i].done, nullptr));
    if (written.ok()) waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(count));
    failed = !written.ok();
    state_ = std::move(room);
    lock.unlock();
    for (auto& done : heard) done(written);
    lock.lock();
    if (last && (waiting_.empty() || !written.ok())) return;
  }
}

absl::Status FileAuditLog::Write(const std::string& bytes) {
  if (size_ >= options_.max_file.count()) {
    // In a file that is too long the lines are safe all the same.
    if (const auto status = Rotate(); !status.ok() && options_.say)
      options_.say(absl::StrCat("the audit goes on in its old file: ", std::string(status.message())));
  }
  auto status = WriteAll(file_, std::as_bytes(std::span(bytes)), PathOf(0));
  if (status.ok() && ::fdatasync(file_.get()) != 0) status = DiskError(errno, "sync", PathOf(0));
  if (status.ok()) {
    size_ += bytes.size();
    return status;
  }
  // They are written again as a whole. What a failed cut leaves is half a line and the same lines twice.
  if (::ftruncate(file_.get(), static_cast<off_t>(size_)) != 0)
    return DiskError(errno, "cut off what was half written to", PathOf(0));
  return status;
}

// The new file is made first: without room for it nothing changes.
absl::Status FileAuditLog::Rotate() {
  const auto fresh = options_.directory + "/audit.new";
  ::unlink(fresh.c_str());
  TROUPE_ASSIGN_OR_RETURN(auto file, OpenFile(fresh, O_RDWR | O_CREAT | O_EXCL | O_APPEND, 0600));
  ::unlink(PathOf(options_.files - 1).c_str());
  for (std::size_t age = options_.files - 1; age > 0; --age)
    if (::rename(PathOf(age - 1).c_str(), PathOf(age).c_str()) != 0 && errno != ENOENT)
      return DiskError(errno, "rename", PathOf(age - 1));
  if (::rename(fresh.c_str(), PathOf(0).c_str()) != 0) return DiskError(errno, "rename", fresh);
  // What was reserved beyond its lines.
  static_cast<void>(::ftruncate(file_.get(), static_cast<off_t>(size_)));
  file_ = std::move(file);
  size_ = reserved_ = 0;
  return SyncDirectory(options_.directory);
}

absl::Status FileAuditLog::Reserve(std::uint64_t behind) {
  if (behind <= reserved_) return absl::OkStatus();
  const auto wanted = behind + kReserveStep;
  int error = 0;
  do {
    error = ::fallocate(file_.get(), FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(wanted)) == 0 ? 0 : errno;
  } while (error == EINTR);
  // A file system that reserves nothing takes lines as long as it has room.
  if (error == EOPNOTSUPP || error == ENOSYS || error == 0) {
    reserved_ = wanted;
    return absl::OkStatus();
  }
  return DiskError(error, "reserve room for the audit in", options_.directory);
}

namespace {

constexpr char kNoAnswer[] =
    "it has no answer yet, or the manager ended before it gave one: the change may have been made";

// For lines from the newest to the oldest: whether a reader is told of this line. `ended` holds the changes whose end
// was met and whose beginning was not; the beginning of such a change is left out.
bool IsTold(const AuditLine& line, std::set<std::uint64_t>& ended) {
  if (line.result == kAuditBegun) return ended.erase(line.change) == 0;
  if (line.change > 0) ended.insert(line.change);
  return true;
}

}  // namespace

absl::StatusOr<std::vector<AuditLine>> ReadAudit(const std::string& directory, const AuditQuery& query,
                                                 std::size_t& damaged) {
  damaged = 0;
  std::map<std::uint64_t, AuditLine> found;  // by number: a file that is renamed meanwhile is read twice
  std::set<std::uint64_t> ended;  // changes whose beginning was not met yet; the newest line comes first
  for (std::size_t age = 0; age < kMostFiles && found.size() < query.last; ++age) {
    const auto text = WholeFile(FileName(directory, age));
    if (!text.ok() && (age == 0 || !absl::IsNotFound(text.status()))) return text.status();
    if (!text.ok()) break;
    std::string_view rest = std::string_view(*text).substr(0, text->rfind('\n') + 1);
    while (!rest.empty() && found.size() < query.last) {
      rest.remove_suffix(1);
      const auto begin = rest.rfind('\n') + 1;
      auto line = ParseAuditLine(rest.substr(begin));
      rest = rest.substr(0, begin);
      if (!line.ok()) ++damaged;
      if (!line.ok() || !IsTold(*line, ended) || !Matches(*line, query)) continue;
      if (line->result == kAuditBegun) line->message = kNoAnswer;
      found.emplace(line->number, *std::move(line));
    }
  }
  std::vector<AuditLine> lines;
  for (auto& [number, line] : found) lines.push_back(std::move(line));
  return lines;
}

}  // namespace troupe::storage
