#include "shell/inputs/external_weights.hpp"

#include <fcntl.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "base/status.hpp"
#include "base/tar.hpp"
#include "shell/inputs/files.hpp"
#include "shell/text/cat.hpp"

namespace troupe::shell {

namespace {

using google::protobuf::internal::WireFormatLite;

// What a message is, by which of its fields lead to tensors (numbers as in onnx.proto).
enum class OnnxMessage { kModel, kGraph, kNode, kAttribute, kFunction, kTensor };
struct Inner {
  OnnxMessage of;
  std::uint32_t field;
  OnnxMessage is;
};
constexpr Inner kInner[] = {
    {OnnxMessage::kModel, 7, OnnxMessage::kGraph},       {OnnxMessage::kModel, 25, OnnxMessage::kFunction},
    {OnnxMessage::kGraph, 1, OnnxMessage::kNode},        {OnnxMessage::kGraph, 5, OnnxMessage::kTensor},
    {OnnxMessage::kFunction, 7, OnnxMessage::kNode},     {OnnxMessage::kNode, 5, OnnxMessage::kAttribute},
    {OnnxMessage::kAttribute, 5, OnnxMessage::kTensor},  {OnnxMessage::kAttribute, 6, OnnxMessage::kGraph},
    {OnnxMessage::kAttribute, 10, OnnxMessage::kTensor}, {OnnxMessage::kAttribute, 11, OnnxMessage::kGraph},
};
constexpr std::uint32_t kExternalData = 13;
constexpr std::uint32_t kDataLocation = 14;
constexpr std::size_t kMostBeside = 256;  // files, as the import takes them
constexpr int kDeepest = 64;              // graphs in graphs, as protobuf reads messages in messages

// One field of a message, in its encoded form.
struct WireField {
  std::uint32_t number = 0;
  std::string_view whole;    // tag and value
  std::string_view content;  // of a message or text
  std::uint64_t value = 0;   // of a number
  bool delimited = false;
};

// Takes the first field off `rest`; nothing where it is not well-formed.
std::optional<WireField> NextField(std::string_view& rest) {
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const std::uint8_t*>(rest.data()),
                                            static_cast<int>(rest.size()));
  const std::uint32_t tag = in.ReadTag();
  if (tag == 0) return std::nullopt;
  WireField field;
  field.number = static_cast<std::uint32_t>(WireFormatLite::GetTagFieldNumber(tag));
  const auto type = WireFormatLite::GetTagWireType(tag);
  field.delimited = type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
  if (field.delimited) {
    std::uint32_t length = 0;
    if (!in.ReadVarint32(&length)) return std::nullopt;
    const auto begin = static_cast<std::size_t>(in.CurrentPosition());
    if (length > rest.size() - begin) return std::nullopt;
    field.content = rest.substr(begin, length);
    field.whole = rest.substr(0, begin + length);
  } else {
    const bool read = type == WireFormatLite::WIRETYPE_VARINT ? in.ReadVarint64(&field.value)
                                                              : WireFormatLite::SkipField(&in, tag);
    if (!read) return std::nullopt;
    field.whole = rest.substr(0, static_cast<std::size_t>(in.CurrentPosition()));
  }
  rest.remove_prefix(field.whole.size());
  return field;
}

struct Descriptor {
  explicit Descriptor(int descriptor) : fd(descriptor) {}
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
  Descriptor(Descriptor&& other) noexcept : fd(std::exchange(other.fd, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd, other.fd);
    return *this;
  }
  int fd;
};

absl::StatusOr<std::string> ReadRange(const Descriptor& file, std::uint64_t offset, std::size_t length,
                                      const std::string& path) {
  std::string bytes(length, '\0');
  for (std::size_t have = 0; have < length;) {
    const ssize_t got = pread(file.fd, bytes.data() + have, length - have, static_cast<off_t>(offset + have));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      return absl::InvalidArgumentError(Cat("'", path, "' cannot be read: ", std::strerror(errno)));
    if (got == 0) return absl::AbortedError(Cat("'", path, "' became shorter while it was read"));
    have += static_cast<std::size_t>(got);
  }
  return bytes;
}

// A file beside the model.
struct Beside {
  Descriptor file;
  std::uint64_t size = 0;
};
using BesideFiles = std::map<std::string, Beside>;  // by normal path below the model's folder

// Finds the files in which a model's tensors lie, and opens them.
class WeightFinder {
 public:
  explicit WeightFinder(std::string path) : path_(std::move(path)) {}

  absl::Status Find(OnnxMessage kind, std::string_view message, int depth) {
    if (kind == OnnxMessage::kTensor) return FindTensor(message);
    // Nothing of it can be a tensor at this depth: the import refuses such a file.
    for (std::string_view rest = depth < kDeepest ? message : std::string_view(); !rest.empty();) {
      const auto field = NextField(rest);
      if (!field) return absl::OkStatus();
      if (const Inner* const inner = InnerOf(kind, *field); inner != nullptr)
        TROUPE_RETURN_IF_ERROR(Find(inner->is, field->content, depth + 1));
    }
    return absl::OkStatus();
  }
  BesideFiles Take() { return std::move(files_); }

 private:
  using Entries = std::vector<std::pair<std::string, std::string>>;

  static const Inner* InnerOf(OnnxMessage kind, const WireField& field) {
    if (!field.delimited) return nullptr;
    for (const Inner& inner : kInner)
      if (inner.of == kind && inner.field == field.number) return &inner;
    return nullptr;
  }

  absl::Status FindTensor(std::string_view message) {
    bool external = false;
    Entries entries;
    for (std::string_view rest = message; !rest.empty();) {
      const auto field = NextField(rest);
      if (!field) return absl::OkStatus();
      if (field->number == kDataLocation) external = external || field->value == 1;
      if (field->number == kExternalData) entries.push_back(EntryOf(field->content));
    }
    return external ? Open(entries) : absl::OkStatus();
  }

  // A StringStringEntryProto: key and value.
  static std::pair<std::string, std::string> EntryOf(std::string_view message) {
    std::pair<std::string, std::string> entry;
    while (!message.empty()) {
      const auto field = NextField(message);
      if (!field) break;
      if (field->number == 1) entry.first = std::string(field->content);
      if (field->number == 2) entry.second = std::string(field->content);
    }
    return entry;
  }

  [[nodiscard]] absl::Status Wrong(std::string_view location, std::string_view what) const {
    return absl::InvalidArgumentError(Cat("'", path_, "' keeps weights in '", location, "', which ", what));
  }

  absl::Status Open(const Entries& entries) {
    std::string location;
    std::uint64_t offset = 0;
    std::optional<std::uint64_t> length;
    for (const auto& [key, value] : entries) {
      std::uint64_t number = 0;
      if (key == "location") location = value;
      if (key != "offset" && key != "length") continue;
      if (!absl::SimpleAtoi(value, &number)) return Wrong(location, Cat("has the ", key, " '", value, "'"));
      if (key == "offset") offset = number;
      if (key == "length") length = number;
    }
    const auto name = std::filesystem::path(location).lexically_normal().string();
    auto found = files_.find(name);
    if (found == files_.end()) {
      if (files_.size() == kMostBeside)
        return Wrong(location, Cat("is one file more than the ", kMostBeside, " that a model may have"));
      TROUPE_ASSIGN_OR_RETURN(Beside file, OpenFile(location));
      found = files_.emplace(name, std::move(file)).first;
    }
    const std::uint64_t size = found->second.size;
    const std::uint64_t want = length.value_or(offset <= size ? size - offset : 0);
    if (offset > size || want > size - offset)
      return Wrong(location, Cat("has ", size, " bytes, but ", want, " at offset ", offset, " are needed"));
    return absl::OkStatus();
  }

  [[nodiscard]] absl::StatusOr<Beside> OpenFile(const std::string& location) const {
    TROUPE_ASSIGN_OR_RETURN(Descriptor file, OpenBeside(location));
    struct stat about = {};
    if (fstat(file.fd, &about) != 0 || !S_ISREG(about.st_mode))
      return Wrong(location, "is not a regular file");
    return Beside{std::move(file), static_cast<std::uint64_t>(about.st_size)};
  }

  // Folder by folder, so that no symbolic link is followed on the way.
  [[nodiscard]] absl::StatusOr<Descriptor> OpenBeside(const std::string& location) const {
    const std::filesystem::path relative(location);
    const auto folder = std::filesystem::path(path_).parent_path();
    if (location.empty() || location.find('\0') != std::string::npos || relative.is_absolute())
      return Wrong(location, "is not a path below the model's folder; put the weights beside the model");
    Descriptor at(open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    for (auto part = relative.begin(); part != relative.end() && at.fd >= 0; ++part) {
      if (*part == "..")
        return Wrong(location, "leads out of the model's folder; put the weights beside the model");
      const bool last = std::next(part) == relative.end();
      at = Descriptor(
          openat(at.fd, part->c_str(),
                 O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (last ? 0 : O_DIRECTORY)));
    }
    if (at.fd < 0 && (errno == ELOOP || errno == ENOTDIR))
      return Wrong(
          location,
          "leads through a symbolic link, or through a file; put the file itself below the model's folder");
    if (at.fd < 0)
      return Wrong(location, Cat("cannot be read: ", std::strerror(errno),
                                 "; put the file beside the model, or save the model as one file"));
    return at;
  }

  const std::string path_;
  BesideFiles files_;
};

// Text and files, one after the other.
class PieceSource final : public actors::UploadSource {
 public:
  void Add(std::string bytes) {
    if (bytes.empty()) return;
    const std::uint64_t size = bytes.size();
    pieces_.push_back({size_, size, std::move(bytes), Descriptor(-1), ""});
    size_ += size;
  }
  void Add(Descriptor file, std::uint64_t size, std::string path) {
    if (size == 0) return;
    pieces_.push_back({size_, size, "", std::move(file), std::move(path)});
    size_ += size;
  }
  [[nodiscard]] std::uint64_t size() const override { return size_; }
  [[nodiscard]] absl::StatusOr<std::string> Read(std::uint64_t offset, std::size_t length) const override {
    std::string bytes;
    // The last piece that begins there or before.
    auto piece = std::ranges::upper_bound(pieces_, offset, {}, &Piece::begin) - 1;
    for (; bytes.size() < length; ++piece) {
      const std::uint64_t at = offset + bytes.size() - piece->begin;
      const auto part = std::min<std::uint64_t>(length - bytes.size(), piece->size - at);
      if (piece->file.fd < 0) {
        bytes.append(piece->text, at, part);
      } else {
        TROUPE_ASSIGN_OR_RETURN(const auto read, ReadRange(piece->file, at, part, piece->path));
        bytes += read;
      }
    }
    return bytes;
  }

 private:
  struct Piece {
    std::uint64_t begin;
    std::uint64_t size;
    std::string text;
    Descriptor file;
    std::string path;  // for errors
  };
  std::vector<Piece> pieces_;
  std::uint64_t size_ = 0;
};

std::shared_ptr<const PieceSource> ArchiveOf(const std::filesystem::path& model, std::string content,
                                             BesideFiles files) {
  auto archive = std::make_shared<PieceSource>();
  const auto size = content.size();
  archive->Add(TarHeader(model.filename().string(), size));
  archive->Add(std::move(content));
  archive->Add(std::string(TarPadding(size), '\0'));
  for (auto& [name, beside] : files) {
    if (name == model.filename()) continue;  // it is there already
    archive->Add(TarHeader(name, beside.size));
    archive->Add(std::move(beside.file), beside.size, (model.parent_path() / name).string());
    archive->Add(std::string(TarPadding(beside.size), '\0'));
  }
  archive->Add(TarEnd());
  return archive;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const actors::UploadSource>> OpenModel(const std::string& path,
                                                                      Bytes most_file, Bytes most) {
  TROUPE_ASSIGN_OR_RETURN(std::string content, ReadFile(path, most_file));
  BesideFiles files;
  // Larger messages cannot be walked, nor be imported.
  if (content.size() <= static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    WeightFinder finder(path);
    TROUPE_RETURN_IF_ERROR(finder.Find(OnnxMessage::kModel, content, 0));
    files = finder.Take();
  }
  if (files.empty()) return std::make_shared<const actors::StringSource>(std::move(content));
  const auto archive = ArchiveOf(path, std::move(content), std::move(files));
  if (Bytes(archive->size()) > most) {
    return absl::InvalidArgumentError(Cat("'", path, "' has ", FormatBytes(Bytes(archive->size())),
                                          " with its weights; at most ", FormatBytes(most), " are taken"));
  }
  return archive;
}

}  // namespace troupe::shell
