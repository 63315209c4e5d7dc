#include "shell/inputs/npy.hpp"

#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "base/status.hpp"
#include "shell/inputs/tensor.hpp"
#include "shell/text/cat.hpp"

namespace troupe::shell {

namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr std::size_t kMostHeader = 65536;

struct TypeCode {
  std::string_view code;
  proto::DataType type;
};
constexpr std::array<TypeCode, 12> kTypes = {{{"b1", proto::BOOL},
                                              {"u1", proto::UINT8},
                                              {"u2", proto::UINT16},
                                              {"u4", proto::UINT32},
                                              {"u8", proto::UINT64},
                                              {"i1", proto::INT8},
                                              {"i2", proto::INT16},
                                              {"i4", proto::INT32},
                                              {"i8", proto::INT64},
                                              {"f2", proto::FP16},
                                              {"f4", proto::FP32},
                                              {"f8", proto::FP64}}};

absl::Status WrongNpy(std::string_view what) {
  return absl::InvalidArgumentError(Cat("no valid .npy file: ", what));
}

bool Consume(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// The header is a Python dictionary with three entries; only what numpy writes is read.
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view text) : text_(text) {}

  absl::Status Read() {
    if (!Take('{')) return WrongNpy("its header is not a dictionary");
    while (!Take('}')) {
      std::string key;
      if (!String(key) || !Take(':')) return WrongNpy("its header has an entry without a name");
      TROUPE_RETURN_IF_ERROR(Entry(key));
      if (!Take(',') && !Sees('}')) return WrongNpy("its header is cut short");
    }
    SkipSpace();
    if (!text_.empty()) return WrongNpy("something follows its header");
    if (!descr || !fortran || !shape) return WrongNpy("its header lacks 'descr', 'fortran_order' or 'shape'");
    return absl::OkStatus();
  }

  std::optional<std::string> descr;
  std::optional<bool> fortran;
  std::optional<std::vector<std::int64_t>> shape;

 private:
  absl::Status Entry(const std::string& key) {
    if (key == "descr") {
      std::string text;
      if (!String(text)) return WrongNpy("its elements are records; only plain numbers can be sent");
      descr = text;
    } else if (key == "fortran_order") {
      if (Consume(Trimmed(), "True")) {
        fortran = true;
      } else if (Consume(Trimmed(), "False")) {
        fortran = false;
      } else {
        return WrongNpy("'fortran_order' is neither True nor False");
      }
    } else if (key == "shape") {
      return Shape();
    } else {
      return WrongNpy(Cat("its header has an entry '", key.substr(0, 40), "'"));
    }
    return absl::OkStatus();
  }

  absl::Status Shape() {
    shape.emplace();
    if (!Take('(')) return WrongNpy("'shape' is not a tuple");
    while (!Take(')')) {
      Trimmed();
      std::size_t digits = 0;
      while (digits < text_.size() && absl::ascii_isdigit(static_cast<unsigned char>(text_[digits])))
        ++digits;
      std::int64_t size = 0;
      if (digits == 0 || !absl::SimpleAtoi(ForAbsl(text_.substr(0, digits)), &size))
        return WrongNpy("'shape' has a size that is not a valid number");
      text_.remove_prefix(digits);
      shape->push_back(size);
      if (shape->size() > kMostDimensions) return WrongNpy("'shape' has too many dimensions");
      if (!Take(',') && !Sees(')')) return WrongNpy("'shape' is cut short");
    }
    return absl::OkStatus();
  }

  void SkipSpace() { Trimmed(); }
  std::string_view& Trimmed() {
    while (!text_.empty() && absl::ascii_isspace(static_cast<unsigned char>(text_[0])))
      text_.remove_prefix(1);
    return text_;
  }
  bool Sees(char c) { return !Trimmed().empty() && text_[0] == c; }
  bool Take(char c) {
    if (!Sees(c)) return false;
    text_.remove_prefix(1);
    return true;
  }
  bool String(std::string& out) {
    if (!Sees('\'') && !Sees('"')) return false;
    const auto end = text_.find(text_[0], 1);
    if (end == std::string_view::npos) return false;
    out = std::string(text_.substr(1, end - 1));
    text_.remove_prefix(end + 1);
    return true;
  }

  std::string_view text_;
};

absl::StatusOr<proto::DataType> TypeOfDescr(const std::string& descr) {
  const char order = descr.empty() ? '?' : descr[0];
  const std::string code = descr.empty() ? "" : descr.substr(1);
  for (const auto& known : kTypes) {
    if (known.code != code) continue;
    if (order == '<' || (ElementSize(known.type) == 1 && order == '|')) return known.type;
    if (order == '>')
      return absl::InvalidArgumentError(
          Cat("its elements are big-endian ('", descr, "'); save it with a.astype('<", code, "')"));
  }
  return absl::InvalidArgumentError(Cat("its elements are '", descr.substr(0, 20),
                                        "'; only f2 f4 f8, i1 to i8, u1 to u8 and b1, "
                                        "little-endian, can be sent; convert with a.astype('<f4')"));
}

std::uint32_t LittleEndian(std::string_view bytes) {
  std::uint32_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

}  // namespace

absl::StatusOr<proto::Tensor> ParseNpy(std::string_view file) {
  if (!Consume(file, kMagic)) return WrongNpy("it does not begin with \\x93NUMPY");
  if (file.size() < 2) return WrongNpy("it ends inside of its header");
  const int major = static_cast<unsigned char>(file[0]);
  if (major < 1 || major > 3) return WrongNpy(Cat("its format has version ", major, "; 1 to 3 are known"));
  file.remove_prefix(2);
  const std::size_t field = major == 1 ? 2 : 4;
  if (file.size() < field) return WrongNpy("it ends inside of its header");
  const std::size_t length = LittleEndian(file.substr(0, field));
  file.remove_prefix(field);
  if (length > file.size() || length > kMostHeader) return WrongNpy("it ends inside of its header");
  HeaderReader header(file.substr(0, length));
  file.remove_prefix(length);
  TROUPE_RETURN_IF_ERROR(header.Read());
  TROUPE_ASSIGN_OR_RETURN(const auto type, TypeOfDescr(*header.descr));
  // In one dimension both orders are the same bytes, and numpy marks such arrays as it likes.
  if (*header.fortran && header.shape->size() > 1) {
    return absl::InvalidArgumentError(
        "its elements are in Fortran order; save it with np.save(FILE, np.ascontiguousarray(a))");
  }
  return MakeTensor(type, *header.shape, std::string(file));
}

absl::StatusOr<std::string> WriteNpy(const proto::Tensor& tensor) {
  const auto& spec = tensor.spec();
  proto::DataType type = spec.type();
  std::string data = tensor.data().inlined();
  if (type == proto::BF16) {
    std::string wide;
    for (std::size_t i = 0; i + 2 <= data.size(); i += 2) {
      const float value =
          Bfloat16ToFloat(static_cast<std::uint16_t>(LittleEndian(std::string_view(data).substr(i, 2))));
      wide.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    data = std::move(wide);
    type = proto::FP32;
  }
  std::string_view code;
  for (const auto& known : kTypes)
    if (known.type == type) code = known.code;
  if (code.empty()) {
    return absl::InvalidArgumentError(
        Cat("a tensor of ", TypeName(type), " has no form in a .npy file; see it with --json"));
  }
  std::string header =
      Cat("{'descr': '", ElementSize(type) == 1 ? "|" : "<", code, "', 'fortran_order': False, 'shape': (",
          absl::StrJoin(spec.shape(), ", "), spec.shape_size() == 1 ? ",), }" : "), }");
  // The data begins at a multiple of 64: magic, version and length take 10 bytes, a line end one.
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  const auto length = static_cast<std::uint16_t>(header.size());
  return Cat(kMagic, std::string("\x01\x00", 2), std::string(1, static_cast<char>(length & 0xFF)),
             std::string(1, static_cast<char>(length >> 8)), header, data);
}

}  // namespace troupe::shell
