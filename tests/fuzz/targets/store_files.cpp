// Files that storage/ and its readers take from a disk that may have changed any byte of them. First byte: which
// decoder (and with its highest bit, that the checksums in the file are made right, which hides from the
// decoder what is behind them otherwise); the rest is the file.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/check.hpp"
#include "gpu/import/model_check.hpp"
#include "proto/model.pb.h"
#include "storage/backup_list.hpp"
#include "storage/commit_mark.hpp"
#include "storage/crc32c.hpp"
#include "storage/log_scan.hpp"
#include "storage/record_frame.hpp"

namespace {

using namespace troupe;
using namespace troupe::storage;

// A folder in memory with one file of each kind, which each input replaces.
struct World {
  World() {
    std::string pattern = "/dev/shm/troupe-fuzz-XXXXXX";
    TROUPE_CHECK(mkdtemp(pattern.data()) != nullptr, "the folder of the fuzz target is made");
    folder = pattern;
  }
  std::string Put(const std::string& name, std::string_view bytes) {
    const std::string path = folder + "/" + name;
    const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    TROUPE_CHECK(file >= 0 && write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
                 "the file of the fuzz target is written");
    close(file);
    return path;
  }
  std::string folder;
};

constexpr std::size_t kLogBlock = 32768;
constexpr std::size_t kLogHeader = 7;
constexpr std::size_t kMarkCopy = 512;
constexpr std::size_t kMarkCrc = 32;

void PutLittle(std::string& bytes, std::size_t at, std::uint64_t value, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) bytes[at + i] = static_cast<char>(value >> (8 * i));
}

// Seals the records as RocksDB seals those of its logs.
void SealLog(std::string& log) {
  for (std::size_t at = 0; at + kLogHeader < log.size();) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(log[at + i]); };
    const std::size_t length = byte(4) + std::size_t{256} * byte(5);
    if (at % kLogBlock + kLogHeader + length > kLogBlock || log.size() - at - kLogHeader < length) return;
    const std::uint32_t crc = Crc32c(0, std::string_view(log).substr(at + 6, 1 + length));
    PutLittle(log, at, ((crc >> 15) | (crc << 17)) + 0xa282ead8u, 4);
    at += kLogHeader + length;
    if (kLogBlock - at % kLogBlock < kLogHeader) at += kLogBlock - at % kLogBlock;
  }
}

void SealMark(std::string& mark) {
  for (std::size_t at = 0; at + kMarkCrc + 8 <= mark.size(); at += kMarkCopy)
    PutLittle(mark, at + kMarkCrc, Crc32c(0, std::string_view(mark).substr(at, kMarkCrc)), 8);
}

void Record(std::string_view bytes) {
  const std::string_view key = "function/1";
  const auto value = UnframeRecord(Table::kFunctions, key, bytes);
  if (!value.ok()) return;
  TROUPE_CHECK(FrameRecord(Table::kFunctions, key, *value) == bytes, "a record has one frame");
}

void Log(std::string_view bytes) {
  LogScan scan;
  const auto log = std::as_bytes(std::span(bytes.data(), bytes.size()));
  ScanLog("000001.log", log, scan);
  TROUPE_CHECK(!scan.damaged() || scan.damaged_at <= bytes.size(), "damage lies in its file");
  TROUPE_CHECK(scan.unread.count() <= bytes.size(), "no more is unread than was written");
  // A second log goes on where the first one ended.
  ScanLog("000002.log", log, scan);
}

void Backup(World& world, std::string_view bytes) {
  world.Put("BACKUP", bytes);
  const auto list = ReadBackupList(world.folder);
  if (!list.ok()) return;
  for (const auto& file : list->files) {
    const std::string inside = (std::filesystem::path(world.folder) / file.path).lexically_normal();
    TROUPE_CHECK(inside.starts_with(world.folder + "/"), "a backup names no file outside of it");
  }
}

void Model(std::string_view bytes) {
  proto::Model model;
  if (!model.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  const std::uint64_t weights = model.weights_bytes() % 4096;
  if (!gpu::CheckModel(model, weights).ok()) return;
  for (const auto& weight : model.weights())
    TROUPE_CHECK(weight.length() <= weights && weight.offset() <= weights - weight.length(),
                 "a sound model's weights lie inside of its blob");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static World& world = *new World();
  if (size == 0) return 0;
  std::string bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  const bool sealed = data[0] >= 128;
  switch (data[0] % 128 % 5) {
    case 0:
      Record(sealed ? FrameRecord(Table::kFunctions, "function/1", bytes) : bytes);
      break;
    case 1:
      if (sealed) SealLog(bytes);
      Log(bytes);
      break;
    case 2:
      if (sealed) SealMark(bytes);
      (void)CommitMark::Read(world.Put("MARK", bytes));
      break;
    case 3:
      Backup(world, bytes);
      break;
    default:
      Model(bytes);
  }
  return 0;
}
