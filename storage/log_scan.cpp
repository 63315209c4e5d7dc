#include "storage/log_scan.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "storage/crc32c.hpp"
#include "storage/disk_status.hpp"
#include "storage/mapped_file.hpp"

namespace troupe::storage {
namespace {

constexpr std::size_t kBlock = 32768;
constexpr std::size_t kHeader = 7;        // u32 CRC, u16 length, u8 type
constexpr std::size_t kBatchHeader = 12;  // u64 number of the first change, u32 changes
enum Part : std::uint8_t { kNothing = 0, kFull = 1, kFirst = 2, kMiddle = 3, kLast = 4 };

std::uint64_t Little(std::string_view bytes, std::size_t at, int count) {
  std::uint64_t value = 0;
  for (int i = count - 1; i >= 0; --i)
    value = (value << 8) | static_cast<unsigned char>(bytes[at + static_cast<std::size_t>(i)]);
  return value;
}

// RocksDB stores checksums of data that may hold checksums in another form.
std::uint32_t Mask(std::uint32_t crc) {
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

struct Piece {
  Part part = kNothing;
  std::string_view payload;
  const char* wrong = nullptr;  // what is wrong with it; null: it is whole
};

Piece PieceAt(std::string_view log, std::size_t at) {
  if (log.size() - at < kHeader) return {kNothing, {}, "a record is cut short"};
  const auto length = static_cast<std::size_t>(Little(log, at + 4, 2));
  const auto type = static_cast<std::uint8_t>(log[at + 6]);
  if (type < kFull || type > kLast) return {kNothing, {}, "a record has no known type"};
  if (at % kBlock + kHeader + length > kBlock) return {kNothing, {}, "a record's length is wrong"};
  if (log.size() - at - kHeader < length) return {kNothing, {}, "a record is cut short"};
  const auto sealed = log.substr(at + 6, 1 + length);
  if (Mask(Crc32c(0, sealed)) != Little(log, at, 4)) return {kNothing, {}, "a record's checksum is wrong"};
  return {static_cast<Part>(type), sealed.substr(1), nullptr};
}

// Behind it are zeros only: room that was reserved, or a block's unused end.
std::size_t EndOfData(std::string_view log) {
  const auto last = log.find_last_not_of('\0');
  return last == std::string_view::npos ? 0 : last + 1;
}

// One log from its beginning to the first thing that is wrong.
class Reader {
 public:
  Reader(const std::string& file, std::string_view log, LogScan& scan)
      : file_(file), log_(log), end_(EndOfData(log)), scan_(scan) {}

  void Read() {
    if (scan_.damaged()) return Prove(0);
    std::size_t at = 0;
    while (at < end_) {
      if (kBlock - at % kBlock < kHeader) {
        at += kBlock - at % kBlock;
        continue;
      }
      const Piece piece = PieceAt(log_, at);
      const char* wrong = piece.wrong != nullptr ? piece.wrong : Take(piece, at);
      if (wrong != nullptr) return Damaged(open_ ? begin_ : at, at, wrong);
      at += kHeader + piece.payload.size();
    }
    if (open_) Damaged(begin_, end_, "a record is cut short");
  }

 private:
  // Null, or what is wrong: parts out of order, or a group that does not follow the one before.
  const char* Take(const Piece& piece, std::size_t at) {
    const bool starts = piece.part == kFull || piece.part == kFirst;
    if (starts == open_) return "a record's parts are out of order";
    if (starts) {
      begin_ = at;
      group_.clear();
    }
    open_ = piece.part == kFirst || piece.part == kMiddle;
    // Of a group in several parts only its beginning is needed.
    if (group_.size() < kBatchHeader) group_.append(piece.payload.substr(0, kBatchHeader));
    if (open_) return nullptr;
    if (group_.size() < kBatchHeader) return "a record is too short for a commit";
    const auto first = Little(group_, 0, 8);
    const auto count = Little(group_, 8, 4);
    if (scan_.last != 0 && first > scan_.last + 1) {
      scan_.hole = true;
      scan_.proven = first - 1;
      begin_ = at;
      return "the commits before this one are missing";
    }
    scan_.last = std::max(scan_.last, first + count - 1);
    scan_.changes += count;
    return nullptr;
  }

  void Damaged(std::size_t first_byte, std::size_t from, const char* what) {
    scan_.damaged_file = file_;
    scan_.damaged_at = first_byte;
    scan_.damage = what;
    scan_.unread = Bytes(end_ > first_byte ? end_ - first_byte : 0);
    open_ = false;
    Prove(from + 1);
  }

  // Looks for groups that can be read behind what cannot, at every byte: a wrong length leads nowhere.
  void Prove(std::size_t at) {
    while (at + kHeader + kBatchHeader <= end_) {
      const auto type = static_cast<std::uint8_t>(log_[at + 6]);
      if (type != kFull && type != kFirst) {
        ++at;
        continue;
      }
      const Piece piece = PieceAt(log_, at);
      const bool group = piece.wrong == nullptr && piece.payload.size() >= kBatchHeader;
      if (group) scan_.proven = std::max(scan_.proven, Little(piece.payload, 0, 8) - 1);
      at += group ? kHeader + piece.payload.size() : 1;
    }
  }

  const std::string& file_;
  const std::string_view log_;
  const std::size_t end_;
  LogScan& scan_;
  bool open_ = false;      // inside a group of several parts
  std::size_t begin_ = 0;  // of the group at hand
  std::string group_;      // its first bytes
};

}  // namespace

void ScanLog(const std::string& file, std::span<const std::byte> bytes, LogScan& scan) {
  Reader(file, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, scan).Read();
}

absl::StatusOr<LogScan> ScanLogs(const std::string& directory, std::uint64_t first) {
  std::map<std::uint64_t, std::string> logs;
  std::error_code error;
  std::filesystem::directory_iterator it(directory, error);
  for (const std::filesystem::directory_iterator end; !error && it != end; it.increment(error)) {
    std::uint64_t number = 0;
    if (it->path().extension() == ".log" && absl::SimpleAtoi(it->path().stem().string(), &number) &&
        number >= first)
      logs[number] = it->path().string();
  }
  LogScan scan;
  if (error == std::errc::no_such_file_or_directory) return scan;
  if (error) return DiskError(error.value(), "list", directory);
  for (const auto& [number, path] : logs) {
    TROUPE_ASSIGN_OR_RETURN(const auto file, MappedFile::Open(path));
    ScanLog(std::filesystem::path(path).filename().string(), file->bytes(), scan);
  }
  return scan;
}

}  // namespace troupe::storage
