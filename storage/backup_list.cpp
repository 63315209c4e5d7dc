#include "storage/backup_list.hpp"

#include <fcntl.h>

#include <filesystem>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/digest.hpp"
#include "base/status.hpp"
#include "proto/formats.hpp"
#include "storage/durable_file.hpp"
#include "storage/mapped_file.hpp"

namespace troupe::storage {
namespace {

constexpr char kName[] = "/BACKUP";
constexpr char kFirstLine[] = "troupe-backup ";
constexpr int kBackupFormat = proto::kBackupFormat;
constexpr std::size_t kDigest = 64;  // hexadecimal digits

absl::Status Damaged(const std::string& backup, const std::string& how) {
  return absl::DataLossError(
      absl::StrCat("the backup ", backup, " is damaged: its file BACKUP ", how, ": use another backup"));
}

// Nothing that a list says may lead out of the backup.
bool StaysInside(const std::string& path) {
  const std::filesystem::path parts(path);
  if (path.empty() || parts.is_absolute()) return false;
  for (const auto& part : parts)
    if (part == ".." || part == "." || part.empty()) return false;
  return true;
}

absl::Status ReadFileLine(const std::string& backup, absl::string_view line, BackupList& list) {
  const std::vector<std::string> words = absl::StrSplit(line, absl::MaxSplits(' ', 2));
  std::uint64_t size = 0;
  if (words.size() != 3 || !IsSha256Hex(words[0]) || !absl::SimpleAtoi(words[1], &size))
    return Damaged(backup, "has a line that is not a file");
  if (!StaysInside(words[2])) {
    return absl::InvalidArgumentError(
        absl::StrCat("the backup ", backup, " names a file outside of it: '", words[2], "'"));
  }
  list.files.push_back({words[2], words[0], Bytes(size)});
  return absl::OkStatus();
}

absl::Status CheckFirstLine(const std::string& backup, absl::string_view line) {
  int format = 0;
  if (!absl::ConsumePrefix(&line, kFirstLine) || !absl::SimpleAtoi(line, &format) || format < 1)
    return Damaged(backup, "does not begin as one");
  if (format <= kBackupFormat) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the backup ", backup, " has format ", format,
                                                    ", this build reads up to ", kBackupFormat,
                                                    ": use a newer release"));
}

}  // namespace

Bytes BackupList::bytes() const {
  Bytes sum;
  for (const File& file : files) sum += file.size;
  return sum;
}

absl::StatusOr<BackupList> ReadBackupList(const std::string& backup) {
  const auto file = MappedFile::Open(backup + kName);
  if (absl::IsNotFound(file.status())) {
    return absl::FailedPreconditionError(absl::StrCat(
        backup, " has no file BACKUP: it is not a backup, or it was cut short; use another one"));
  }
  if (!file.ok()) return file.status();
  const auto bytes = (*file)->bytes();
  // Of an empty file nothing is mapped, and StrSplit finds no line in a null text, not even an empty one.
  if (bytes.empty()) return Damaged(backup, "is empty");
  const absl::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  TROUPE_RETURN_IF_ERROR(CheckFirstLine(backup, lines.front()));
  // The last line is the digest of the lines before it.
  const std::size_t tail = sizeof("end ") - 1 + kDigest + 1;
  if (text.size() < tail || Sha256Hex(std::string(text.substr(0, text.size() - tail))) !=
                                std::string(text.substr(text.size() - kDigest - 1, kDigest)))
    return Damaged(backup, "does not match its own digest");
  BackupList list;
  lines.resize(lines.size() - 2);
  for (absl::string_view line : lines) {
    if (absl::ConsumePrefix(&line, "cluster ")) {
      list.cluster = std::string(line);
    } else if (absl::ConsumePrefix(&line, "sequence ")) {
      if (!absl::SimpleAtoi(line, &list.sequence)) return Damaged(backup, "has no sequence number");
    } else if (absl::ConsumePrefix(&line, "file ")) {
      TROUPE_RETURN_IF_ERROR(ReadFileLine(backup, line, list));
    }
  }
  return list;
}

absl::Status WriteBackupList(const std::string& backup, const BackupList& list) {
  std::string text =
      absl::StrCat(kFirstLine, kBackupFormat, "\ncluster ", list.cluster, "\nsequence ", list.sequence, "\n");
  for (const auto& file : list.files)
    absl::StrAppend(&text, "file ", file.digest, " ", file.size.count(), " ", file.path, "\n");
  return ReplaceFile(backup + kName, absl::StrCat(text, "end ", Sha256Hex(text), "\n"));
}

absl::StatusOr<BackupList::File> DigestFile(const std::string& path) {
  TROUPE_ASSIGN_OR_RETURN(const auto file, MappedFile::Open(path));
  Sha256 hash;
  hash.Update(file->bytes());
  return BackupList::File{path, hash.Finish(), Bytes(file->bytes().size())};
}

absl::StatusOr<BackupList::File> CopyFile(const std::string& from, const std::string& to) {
  TROUPE_ASSIGN_OR_RETURN(const auto source, MappedFile::Open(from));
  TROUPE_ASSIGN_OR_RETURN(const transport::UniqueFd file, OpenFile(to, O_WRONLY | O_CREAT | O_EXCL, 0600));
  // In pieces, so that the digest is of the bytes that were written, while they are in the cache.
  constexpr std::size_t kPiece = 1 << 20;
  Sha256 hash;
  for (auto rest = source->bytes(); !rest.empty();) {
    const auto piece = rest.first(std::min(kPiece, rest.size()));
    hash.Update(piece);
    TROUPE_RETURN_IF_ERROR(WriteAll(file, piece, to));
    rest = rest.subspan(piece.size());
  }
  TROUPE_RETURN_IF_ERROR(SyncFile(file, to));
  return BackupList::File{to, hash.Finish(), Bytes(source->bytes().size())};
}

}  // namespace troupe::storage
