// TEXTS: how kernels have tensors of type BYTES. An element is a pointer to a text, which is a 4-byte little-endian length
// and that many bytes, not aligned. So operators that only move elements move texts as they move numbers of 8 bytes, and
// no text is copied on its way. The texts lie in an input of the run, in a constant of the plan, or in the room behind the
// elements of the value whose step made them, which is not reused while the run goes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/units.hpp"
#include "gpu/ops/op_support.hpp"
#include "gpu/ops/text_room.hpp"

namespace troupe::gpu {

using Text = const std::byte*;

[[nodiscard]] inline std::string_view ReadText(Text text) {
  std::uint32_t length = 0;
  std::memcpy(&length, text, sizeof(length));
  return {reinterpret_cast<const char*>(text) + sizeof(length), length};
}
[[nodiscard]] inline std::string_view TextAt(const TensorView& view, std::int64_t i) {
  return ReadText(Data<Text>(view)[i]);
}

// For abseil's functions, whose string_view is a class of its own on Debian.
[[nodiscard]] inline absl::string_view AbslText(std::string_view text) {
  return {text.data(), text.size()};
}

// Room behind the elements for the texts that a step makes, with their lengths.
[[nodiscard]] Bytes RoomForTexts(const ValueInfo& made);

// The bound of `count` texts, each of at most `longest` bytes.
[[nodiscard]] TextBound BoundOf(std::int64_t count, std::uint64_t longest);
// What an output that consists of elements of the inputs, in any order and number, can have at most.
[[nodiscard]] TextBound MovedTexts(std::string_view op, Infos in, std::int64_t count);
// Makes `value` one whose step writes its texts.
void MakesTexts(ValueInfo& value, TextBound bound);

// Writes the elements of an output and their texts, in the elements' order.
class TextWriter {
 public:
  // `room`: RoomForTexts of the output.
  TextWriter(const TensorView& out, Bytes room);
  // InvalidArgument when the room is full.
  absl::Status Add(std::string_view text);

 private:
  Text* cell_;
  std::byte* at_;
  std::size_t left_;
};

// Points at each of `count` texts that lie one after the other in `bytes`. InvalidArgument when a length says more than
// there is, or something is left.
absl::Status PointAtTexts(std::span<const std::byte> bytes, std::int64_t count, Text* cells);

// The way of an input of a launch into a plan (UINT8 [bytes] to BYTES), and of an output out of it.
[[nodiscard]] std::unique_ptr<Kernel> MakeTextReader();
[[nodiscard]] std::unique_ptr<Kernel> MakeTextCollector(Bytes room);

}  // namespace troupe::gpu
