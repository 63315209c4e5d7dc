#include "storage/record_frame.hpp"

#include <array>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "storage/crc32c.hpp"

namespace troupe::storage {
namespace {

constexpr std::uint16_t kMagic = 0x5254;  // "TR" on disk
constexpr std::uint8_t kVersion = 1;

void AppendLittle(std::string& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

std::uint64_t ReadLittle(std::string_view in, std::size_t at, int bytes) {
  std::uint64_t value = 0;
  for (int i = bytes - 1; i >= 0; --i) {
    value = (value << 8) | static_cast<unsigned char>(in[at + static_cast<std::size_t>(i)]);
  }
  return value;
}

std::uint32_t RecordCrc(Table table, std::string_view key, std::string_view value) {
  std::string prefix(1, static_cast<char>(table));
  AppendLittle(prefix, key.size(), 4);
  return Crc32c(Crc32c(Crc32c(0, prefix), key), value);
}

absl::Status Damaged(Table table, std::string_view key, const std::string& how) {
  return absl::DataLossError(absl::StrCat("record '", absl::CHexEscape(std::string(key)), "' of table ",
                                          TableName(table), " is damaged: ", how));
}

}  // namespace

std::string FrameRecord(Table table, std::string_view key, std::string_view value) {
  TROUPE_CHECK(value.size() <= UINT32_MAX, "a batch is bounded far below this");
  std::string record;
  record.reserve(kFrameBytes + value.size());
  AppendLittle(record, kMagic, 2);
  AppendLittle(record, kVersion, 1);
  AppendLittle(record, 0, 1);
  AppendLittle(record, value.size(), 4);
  AppendLittle(record, RecordCrc(table, key, value), 4);
  record.append(value);
  return record;
}

absl::StatusOr<std::string_view> UnframeRecord(Table table, std::string_view key, std::string_view record) {
  if (record.size() < kFrameBytes) {
    return Damaged(table, key, absl::StrCat("it has ", record.size(), " bytes, less than a frame"));
  }
  if (ReadLittle(record, 0, 2) != kMagic)
    return Damaged(table, key, "it does not begin with the magic number");
  const std::uint64_t version = ReadLittle(record, 2, 1);
  if (version != kVersion) {
    return absl::FailedPreconditionError(absl::StrCat("a record of table ", TableName(table), " has format ",
                                                      version, ", this build reads ", kVersion,
                                                      ": use a newer release"));
  }
  const std::string_view value = record.substr(kFrameBytes);
  if (ReadLittle(record, 3, 1) != 0 || ReadLittle(record, 4, 4) != value.size()) {
    return Damaged(table, key,
                   absl::StrCat("it holds ", value.size(), " bytes, and its frame says otherwise"));
  }
  if (ReadLittle(record, 8, 4) != RecordCrc(table, key, value))
    return Damaged(table, key, "its checksum is wrong");
  return value;
}

}  // namespace troupe::storage
