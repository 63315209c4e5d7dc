#include "shell/inputs/external_weights.hpp"

#include <fcntl.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "base/status.hpp"
#include "shell/cat.hpp"
#include "shell/inputs/files.hpp"

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
constexpr std::uint32_t kRawData = 9;
constexpr std::uint32_t kExternalData = 13;
constexpr std::uint32_t kDataLocation = 14;
constexpr int kDeepest = 64;  // graphs in graphs, as protobuf reads messages in messages

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

void AppendVarint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void AppendDelimited(std::string& out, std::uint32_t number, std::string_view content) {
  AppendVarint(out, std::uint64_t{number} << 3 | WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
  AppendVarint(out, content.size());
  out.append(content);
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

class Inliner {
 public:
  Inliner(std::string path, Bytes most) : path_(std::move(path)), left_(most.count()) {}

  // The message with weights inside; nothing where none of its tensors lies elsewhere.
  absl::StatusOr<std::optional<std::string>> Message(OnnxMessage kind, std::string_view message, int depth) {
    if (kind == OnnxMessage::kTensor) return Tensor(message);
    std::string out;
    bool changed = false;
    // Nothing of it can be a tensor at this depth: the import refuses such a file.
    for (std::string_view rest = depth < kDeepest ? message : std::string_view(); !rest.empty();) {
      const auto field = NextField(rest);
      if (!field) return std::nullopt;
      const Inner* const inner = InnerOf(kind, *field);
      std::optional<std::string> replaced;
      if (inner != nullptr) {
        TROUPE_ASSIGN_OR_RETURN(replaced, Message(inner->is, field->content, depth + 1));
      }
      if (replaced) {
        if (!changed)
          out.assign(message.substr(0, static_cast<std::size_t>(field->whole.data() - message.data())));
        AppendDelimited(out, field->number, *replaced);
        changed = true;
      } else if (changed) {
        out.append(field->whole);
      }
    }
    if (!changed) return std::nullopt;
    return out;
  }

 private:
  static const Inner* InnerOf(OnnxMessage kind, const WireField& field) {
    if (!field.delimited) return nullptr;
    for (const Inner& inner : kInner)
      if (inner.of == kind && inner.field == field.number) return &inner;
    return nullptr;
  }

  absl::StatusOr<std::optional<std::string>> Tensor(std::string_view message) {
    std::string out;
    bool external = false;
    std::vector<std::pair<std::string, std::string>> entries;
    for (std::string_view rest = message; !rest.empty();) {
      const auto field = NextField(rest);
      if (!field) return std::nullopt;
      if (field->number == kDataLocation) external = external || field->value == 1;
      if (field->number == kExternalData) entries.push_back(EntryOf(field->content));
    }
    if (!external) return std::nullopt;
    TROUPE_ASSIGN_OR_RETURN(const std::string bytes, Weights(entries));
    for (std::string_view rest = message; !rest.empty();) {
      const auto field = NextField(rest);
      const bool gone =
          field->number == kDataLocation || field->number == kExternalData || field->number == kRawData;
      if (!gone) out.append(field->whole);
    }
    AppendDelimited(out, kRawData, bytes);
    return out;
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

  absl::StatusOr<std::string> Weights(const std::vector<std::pair<std::string, std::string>>& entries) {
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
    TROUPE_ASSIGN_OR_RETURN(const Descriptor file, OpenBeside(location));
    struct stat about = {};
    if (fstat(file.fd, &about) != 0 || !S_ISREG(about.st_mode))
      return Wrong(location, "is not a regular file");
    const auto size = static_cast<std::uint64_t>(about.st_size);
    const std::uint64_t want = length.value_or(offset <= size ? size - offset : 0);
    if (offset > size || want > size - offset)
      return Wrong(location, Cat("has ", size, " bytes, but ", want, " at offset ", offset, " are needed"));
    if (want > left_)
      return Wrong(location,
                   "together with the model is more than one ONNX file can hold (2 GiB); deploy a smaller "
                   "model, or one in FP16");
    left_ -= want;
    return Range(file, offset, want, location);
  }

  [[nodiscard]] absl::StatusOr<std::string> Range(const Descriptor& file, std::uint64_t offset,
                                                  std::uint64_t want, const std::string& location) const {
    std::string bytes(want, '\0');
    for (std::size_t have = 0; have < bytes.size();) {
      const ssize_t got =
          pread(file.fd, bytes.data() + have, bytes.size() - have, static_cast<off_t>(offset + have));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return Wrong(location, Cat("cannot be read: ", std::strerror(errno)));
      if (got == 0) return Wrong(location, "became shorter while it was read");
      have += static_cast<std::size_t>(got);
    }
    return bytes;
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

  std::string path_;
  std::uint64_t left_;  // bytes that may still be put inside
};

}  // namespace

absl::StatusOr<std::string> ReadModelWithWeights(const std::string& path, Bytes most) {
  TROUPE_ASSIGN_OR_RETURN(std::string content, ReadFile(path, most));
  // Larger messages cannot be walked, nor be imported.
  if (content.size() > static_cast<std::size_t>(std::numeric_limits<int>::max())) return content;
  TROUPE_ASSIGN_OR_RETURN(
      std::optional<std::string> whole,
      Inliner(path, most - Bytes(content.size())).Message(OnnxMessage::kModel, content, 0));
  return whole ? *std::move(whole) : std::move(content);
}

}  // namespace troupe::shell
