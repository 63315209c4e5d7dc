#include "gpu/ops/texts.hpp"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"

namespace troupe::gpu {
namespace {

// Operators that may give an element of their input more than once.
constexpr std::array<std::string_view, 7> kRepeating = {
    "Gather", "GatherElements", "GatherND", "Expand", "Tile", "Where", "ai.onnx.ml.ArrayFeatureExtractor"};

// No tensor of texts has more than this without their lengths.
std::uint64_t AtMost(std::uint64_t bytes) {
  return std::min(bytes, kMaxTextBytes.count());
}

class TextReader final : public Kernel {
 public:
  absl::Status Run(In in, Out out, std::byte*) const override {
    return PointAtTexts({in[0].data, BytesOf(in[0])}, Elements(out[0]), MutableData<Text>(out[0]));
  }
};

class TextCollector final : public Kernel {
 public:
  explicit TextCollector(Bytes room) : room_(room.count()) {}
  absl::Status Run(In in, Out out, std::byte*) const override {
    const std::int64_t count = Elements(in[0]);
    std::size_t at = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const Text text = Data<Text>(in[0])[i];
      const std::size_t bytes = kTextLength + ReadText(text).size();
      if (bytes > room_ - at) {
        return absl::InvalidArgumentError(absl::StrCat("its texts take more than the ", room_,
                                                       " bytes that they may have; send fewer or "
                                                       "shorter texts"));
      }
      std::memcpy(out[0].data + at, text, bytes);
      at += bytes;
    }
    out[0].shape = {static_cast<std::int64_t>(at)};
    return absl::OkStatus();
  }

 private:
  std::size_t room_;
};

}  // namespace

Bytes RoomForTexts(const ValueInfo& made) {
  return Bytes(static_cast<std::uint64_t>(made.elements()) * kTextLength + made.texts.total);
}

TextBound BoundOf(std::int64_t count, std::uint64_t longest) {
  std::uint64_t total = 0;
  if (__builtin_mul_overflow(static_cast<std::uint64_t>(count), longest, &total)) total = AtMost(~0ULL);
  return {longest, AtMost(total)};
}

TextBound MovedTexts(std::string_view op, Infos in, std::int64_t count) {
  TextBound bound;
  for (const ValueInfo& info : in) {
    bound.longest = std::max(bound.longest, info.texts.longest);
    bound.total = AtMost(bound.total + info.texts.total);
  }
  return std::ranges::find(kRepeating, op) == kRepeating.end() ? bound : BoundOf(count, bound.longest);
}

void MakesTexts(ValueInfo& value, TextBound bound) {
  value.texts = bound;
  value.makes_texts = true;
}

TextWriter::TextWriter(const TensorView& out, Bytes room)
    : cell_(MutableData<Text>(out)), at_(out.data + BytesOf(out)), left_(room.count()) {}

absl::Status TextWriter::Add(std::string_view text) {
  if (left_ < kTextLength || text.size() > left_ - kTextLength) {
    return absl::InvalidArgumentError(
        absl::StrCat("the texts that it makes take more than the room of their tensor, which has at most ",
                     FormatBytes(kMaxTextBytes), "; send fewer or shorter texts"));
  }
  const auto length = static_cast<std::uint32_t>(text.size());
  std::memcpy(at_, &length, sizeof(length));
  if (!text.empty()) std::memcpy(at_ + kTextLength, text.data(), text.size());
  *cell_++ = at_;
  at_ += kTextLength + text.size();
  left_ -= kTextLength + text.size();
  return absl::OkStatus();
}

absl::Status PointAtTexts(std::span<const std::byte> bytes, std::int64_t count, Text* cells) {
  std::size_t at = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (bytes.size() - at < kTextLength) {
      return absl::InvalidArgumentError(
          absl::StrCat("its ", bytes.size(), " bytes end after ", i, " of ", count, " texts"));
    }
    const std::size_t length = ReadText(bytes.data() + at).size();
    const std::size_t left = bytes.size() - at - kTextLength;
    if (length > left) {
      return absl::InvalidArgumentError(
          absl::StrCat("text ", i, " says it has ", length, " bytes, but only ", left, " are left"));
    }
    cells[i] = bytes.data() + at;
    at += kTextLength + length;
  }
  if (at == bytes.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(bytes.size() - at, " bytes are left after its ", count, " texts"));
}

std::unique_ptr<Kernel> MakeTextReader() {
  return std::make_unique<TextReader>();
}

std::unique_ptr<Kernel> MakeTextCollector(Bytes room) {
  return std::make_unique<TextCollector>(room);
}

}  // namespace troupe::gpu
