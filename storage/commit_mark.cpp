#include "storage/commit_mark.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "storage/crc32c.hpp"
#include "storage/disk_status.hpp"

namespace troupe::storage {
namespace {

// Two copies, each in a sector of its own: when a power failure cuts one short, the other is whole.
constexpr std::size_t kCopyBytes = 512;
constexpr std::size_t kFileBytes = 2 * kCopyBytes;
constexpr std::uint64_t kMagic = 0x314b52414d525454;  // "TTRMARK1"
struct Copy {
  std::uint64_t magic;
  std::uint64_t turn;  // the copy with the larger one is newer
  std::uint64_t sequence;
  std::uint64_t database;
  std::uint64_t crc;  // CRC-32C of the above
};
static_assert(sizeof(Copy) == 40);

std::uint64_t CrcOf(const Copy& copy) {
  return Crc32c(0, {reinterpret_cast<const char*>(&copy), offsetof(Copy, crc)});
}

Copy MakeCopy(std::uint64_t turn, const MarkValue& value) {
  Copy copy{kMagic, turn, value.sequence, value.database, 0};
  copy.crc = CrcOf(copy);
  return copy;
}

}  // namespace

absl::StatusOr<std::uint64_t> DatabaseName(const std::string& directory) {
  TROUPE_ASSIGN_OR_RETURN(const std::string identity, ReadSmallFile(directory + "/IDENTITY", 256));
  return (std::uint64_t{Crc32c(0, identity)} << 32) | Crc32c(1, identity);
}

absl::StatusOr<MarkValue> CommitMark::Read(const std::string& path) {
  TROUPE_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(path, kFileBytes));
  MarkValue newest;
  std::uint64_t turn = 0;
  for (std::size_t at = 0; at + sizeof(Copy) <= text.size(); at += kCopyBytes) {
    Copy copy{};
    std::memcpy(&copy, text.data() + at, sizeof copy);
    if (copy.magic != kMagic || copy.crc != CrcOf(copy) || copy.turn <= turn) continue;
    turn = copy.turn;
    newest = {copy.sequence, copy.database};
  }
  if (turn == 0) {
    return absl::DataLossError(absl::StrCat(path, ", the mark of the last acknowledged commit, is damaged"));
  }
  return newest;
}

absl::StatusOr<CommitMark> CommitMark::Write(const std::string& path, const MarkValue& value) {
  std::string text(kFileBytes, '\0');
  const Copy copy = MakeCopy(1, value);
  std::memcpy(text.data() + kCopyBytes, &copy, sizeof copy);
  TROUPE_RETURN_IF_ERROR(ReplaceFile(path, text));
  TROUPE_ASSIGN_OR_RETURN(transport::UniqueFd file, OpenFile(path, O_WRONLY));
  return CommitMark(path, std::move(file), value);
}

absl::Status CommitMark::Advance(std::uint64_t sequence) {
  if (sequence == value_.sequence) return absl::OkStatus();
  const Copy copy = MakeCopy(turn_ + 1, {sequence, value_.database});
  const auto at = static_cast<off_t>((turn_ + 1) % 2 * kCopyBytes);
  ssize_t written = 0;
  do {
    written = ::pwrite(file_.get(), &copy, sizeof copy, at);
  } while (written < 0 && errno == EINTR);
  if (written < 0) return DiskError(errno, "write to", path_);
  if (written != sizeof copy) return DiskError(ENOSPC, "write to", path_);
  ++turn_;
  value_.sequence = sequence;
  return absl::OkStatus();
}

absl::Status CommitMark::Sync() {
  return ::fdatasync(file_.get()) == 0 ? absl::OkStatus() : DiskError(errno, "sync", path_);
}

}  // namespace troupe::storage
