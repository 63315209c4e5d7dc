#include "base/tar.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.hpp"

namespace troupe {
namespace {

// Where a header has what (POSIX.1-1988, ustar).
struct TarField {
  std::size_t at;
  std::size_t length;
};
constexpr TarField kName{0, 100}, kMode{100, 8}, kUser{108, 8}, kGroup{116, 8}, kSize{124, 12},
    kTime{136, 12}, kSum{148, 8}, kMagic{257, 6}, kVersion{263, 2}, kPrefix{345, 155};
constexpr std::size_t kType = 156;
constexpr std::uint64_t kLargestOctal = 077777777777;  // what 11 digits hold
constexpr std::uint64_t kLongestName = 4096;           // in a record before the header

using TarBlock = std::string_view;  // 512 bytes

std::string_view TextIn(TarBlock block, TarField field) {
  const auto text = block.substr(field.at, field.length);
  return text.substr(0, text.find('\0'));
}

// Octal digits, or a binary number behind a byte 0x80, as GNU writes what digits cannot hold.
std::optional<std::uint64_t> NumberIn(TarBlock block, TarField field) {
  const auto text = block.substr(field.at, field.length);
  std::uint64_t value = 0;
  if (static_cast<unsigned char>(text[0]) == 0x80) {
    for (const char c : text.substr(1)) {
      if (value >> 56 != 0) return std::nullopt;
      value = value << 8 | static_cast<unsigned char>(c);
    }
    return value;
  }
  bool digits = false;
  for (const char c : text.substr(std::min(text.find_first_not_of(' '), text.size()))) {
    if (c == '\0' || c == ' ') break;
    if (c < '0' || c > '7') return std::nullopt;
    value = value << 3 | static_cast<std::uint64_t>(c - '0');
    digits = true;
  }
  return digits ? std::optional(value) : std::nullopt;
}

std::uint64_t SumOf(TarBlock block) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < block.size(); ++i) {
    const bool own = i >= kSum.at && i < kSum.at + kSum.length;
    sum += own ? static_cast<unsigned char>(' ') : static_cast<unsigned char>(block[i]);
  }
  return sum;
}

bool IsHeader(TarBlock block) {
  return block.substr(kMagic.at, 5) == "ustar" && NumberIn(block, kSum) == SumOf(block);
}

// What records before a header say of the file behind it.
struct TarExtras {
  std::optional<std::string> name;
  std::optional<std::uint64_t> size;
};

bool ReadDecimal(std::string_view text, std::uint64_t& value) {
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && rest == text.data() + text.size();
}

// Records "LENGTH KEY=VALUE\n" (POSIX.1-2001).
absl::Status ReadExtras(std::string_view records, TarExtras& extras) {
  while (!records.empty()) {
    const auto space = records.find(' ');
    std::uint64_t length = 0;
    if (space == std::string_view::npos || !ReadDecimal(records.substr(0, space), length) ||
        length <= space + 1 || length > records.size() || records[length - 1] != '\n')
      return absl::InvalidArgumentError("the archive has a damaged record of extended headers");
    const auto record = records.substr(space + 1, length - space - 2);
    records.remove_prefix(length);
    const auto equals = record.find('=');
    if (equals == std::string_view::npos) continue;
    const auto key = record.substr(0, equals), value = record.substr(equals + 1);
    if (key.starts_with("GNU.sparse."))
      return absl::UnimplementedError("the archive has a sparse file; make it without --sparse");
    std::uint64_t size = 0;
    if (key == "path") extras.name = std::string(value);
    if (key == "size" && !ReadDecimal(value, size))
      return absl::InvalidArgumentError("the archive has an extended header with a damaged size");
    if (key == "size") extras.size = size;
  }
  return absl::OkStatus();
}

class TarReader {
 public:
  TarReader(std::string_view archive, std::size_t most) : archive_(archive), most_(most) {}

  absl::StatusOr<std::vector<TarFile>> Run() {
    for (std::size_t entries = 0; at_ < archive_.size(); ++entries) {
      if (entries == most_)
        return absl::InvalidArgumentError(absl::StrCat("the archive has more than ", most_, " entries"));
      if (archive_.size() - at_ < kTarBlock) return Early();
      const TarBlock block = archive_.substr(at_, kTarBlock);
      if (block.find_first_not_of('\0') == TarBlock::npos) break;  // the end
      if (!IsHeader(block))
        return absl::InvalidArgumentError(absl::StrCat("the archive is damaged at byte ", at_));
      at_ += kTarBlock;
      TROUPE_RETURN_IF_ERROR(ReadEntry(block));
    }
    return std::move(files_);
  }

 private:
  [[nodiscard]] absl::Status Early() const {
    return absl::InvalidArgumentError(
        absl::StrCat("the archive ends early, after ", archive_.size(), " bytes: it is not whole"));
  }

  absl::Status ReadEntry(TarBlock header) {
    const auto declared = NumberIn(header, kSize);
    if (!declared) return absl::InvalidArgumentError("the archive has a header with a damaged size");
    const char type = header[kType];
    const bool regular = type == '0' || type == '\0' || type == '7';
    const auto size = regular ? extras_.size.value_or(*declared) : *declared;
    // A link, a directory and a device have no bytes, whatever their headers say.
    const bool has_bytes = regular || type == 'x' || type == 'g' || type == 'L' || type == 'K';
    if (type == 'S')
      return absl::UnimplementedError("the archive has a sparse file; make it without --sparse");
    if (has_bytes && size > archive_.size() - at_) return Early();
    const auto begin = at_;
    if (has_bytes) at_ += std::min<std::uint64_t>(size + TarPadding(size), archive_.size() - at_);
    if (type == 'x' || type == 'L') return ReadBefore(type, archive_.substr(begin, size));
    if (regular) files_.push_back({extras_.name.value_or(NameOf(header)), begin, size});
    if (type != 'g' && type != 'K') extras_ = {};
    return absl::OkStatus();
  }

  absl::Status ReadBefore(char type, std::string_view bytes) {
    if (bytes.size() > 2 * kLongestName)
      return absl::InvalidArgumentError("the archive has an extended header that is too long");
    if (type == 'x') return ReadExtras(bytes, extras_);
    extras_.name = std::string(bytes.substr(0, bytes.find('\0')));
    return absl::OkStatus();
  }

  static std::string NameOf(TarBlock header) {
    const auto prefix = TextIn(header, kPrefix);
    const std::string name(TextIn(header, kName));
    // GNU's older headers have other things there.
    const bool has_prefix = !prefix.empty() && header.substr(kMagic.at, 6) == std::string_view("ustar\0", 6);
    return has_prefix ? absl::StrCat(std::string(prefix), "/", name) : name;
  }

  const std::string_view archive_;
  const std::size_t most_;
  std::uint64_t at_ = 0;
  TarExtras extras_;
  std::vector<TarFile> files_;
};

std::string_view TextOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// One block of a file's header, or of the records before it.
std::string BlockOf(std::string_view name, std::uint64_t size, char type) {
  std::string block(kTarBlock, '\0');
  const auto put = [&block](TarField field, std::string_view text) {
    block.replace(field.at, std::min(text.size(), field.length), text.substr(0, field.length));
  };
  put(kName, name);
  put(kMode, "0000644");
  put(kUser, "0000000");
  put(kGroup, "0000000");
  put(kSize, absl::StrFormat("%011o", std::min(size, kLargestOctal)));
  put(kTime, "00000000000");
  block[kType] = type;
  put(kMagic, std::string_view("ustar\0", 6));
  put(kVersion, "00");
  put(kSum, absl::StrFormat("%06o", SumOf(block)));
  block[kSum.at + 7] = ' ';
  return block;
}

// The length counts itself.
std::string RecordOf(const std::string& key, const std::string& value) {
  const auto rest = absl::StrCat(" ", key, "=", value, "\n");
  auto length = rest.size() + 1;
  while (absl::StrCat(length).size() + rest.size() != length) ++length;
  return absl::StrCat(length, rest);
}

}  // namespace

bool IsTar(std::span<const std::byte> bytes) {
  return bytes.size() >= kTarBlock && IsHeader(TextOf(bytes.first(kTarBlock)));
}

absl::StatusOr<std::vector<TarFile>> ListTar(std::span<const std::byte> archive, std::size_t most) {
  return TarReader(TextOf(archive), most).Run();
}

std::string TarHeader(const std::string& name, std::uint64_t size) {
  std::string records;
  if (name.size() > kName.length) records += RecordOf("path", name);
  if (size > kLargestOctal) records += RecordOf("size", absl::StrCat(size));
  std::string header;
  if (!records.empty()) {
    header = BlockOf("extended", records.size(), 'x') + records;
    header.append(TarPadding(records.size()), '\0');
  }
  return header + BlockOf(name, size, '0');
}

}  // namespace troupe
