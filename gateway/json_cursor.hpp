// Reads JSON in place, value by value, without building a tree: tensor data goes from the text straight to
// where the tensor lives, with every integer and every float exact. Strict RFC 8259 (UTF-8 checked), with one
// extension that a flag allows: the numbers NaN, Infinity and -Infinity.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace troupe::gateway {

// The first error sticks: every later call returns false and status() tells it with its offset. Usage:
//     if (!cursor.BeginObject()) return cursor.status();
//     for (std::string_view key; cursor.NextMember(key);) { read or Skip() the value }
//     if (!cursor.ok()) return cursor.status();
// `key` is valid until the next call of a member.
class JsonCursor {
 public:
  static constexpr std::size_t kMaxDepth = 64;
  enum class Kind { kObject, kArray, kString, kNumber, kBool, kNull, kNothing };

  explicit JsonCursor(std::string_view text, bool allow_non_finite = false)
      : text_(text), allow_non_finite_(allow_non_finite) {}

  // What the next value is, by its first character.
  [[nodiscard]] Kind Peek();
  bool BeginObject();
  // True: `key` was read and its value is next. False: the object has ended, or an error.
  bool NextMember(std::string_view& key);
  bool BeginArray();
  // True: an element is next. False: the array has ended, or an error.
  bool NextElement();

  // `value` is a view of the text, or of a buffer inside the cursor (valid until the next call) when it has
  // escapes.
  bool ReadString(std::string_view& value);
  // The characters of a number that follow the grammar.
  bool ReadNumber(std::string_view& token);
  bool ReadUint(std::uint64_t& value);
  bool ReadBool(bool& value);
  // Reads over a null. False, without an error: the next value is something else.
  bool SkipNull();
  // The next value begins with a minus.
  [[nodiscard]] bool IsNegative() { return Peek() == Kind::kNumber && text_[at_] == '-'; }
  // Reads over any value and checks it.
  bool Skip();
  // True when only white space is left; otherwise an error.
  bool Finish();

  // A value may be visited again: Seek to the offset() taken before it, at the same depth.
  [[nodiscard]] std::size_t offset() const { return at_; }
  void Seek(std::size_t offset) { at_ = offset; }
  [[nodiscard]] std::size_t remaining() const { return text_.size() - at_; }

  // Stops with an error of the caller's, at this place.
  bool Fail(std::string_view what);
  [[nodiscard]] bool ok() const { return status_.ok(); }
  [[nodiscard]] const absl::Status& status() const { return status_; }

 private:
  void SkipSpace();
  // What begins here like a word of JSON and is none; "" when it is one, or no word.
  [[nodiscard]] std::string_view WrongWord() const;
  // Stops with what was expected and what is there instead.
  bool FailExpected(std::string_view what);
  bool Enter(char open);
  bool NextItem(char close);
  bool Literal(std::string_view word);
  bool ReadEscape();
  bool ReadHex4(std::uint32_t& value);
  bool ReadUtf8();

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t depth_ = 0;
  std::uint64_t first_ = 0;  // bit d: no item of the container at depth d was read yet
  bool allow_non_finite_;
  std::string unescaped_;
  absl::Status status_;
};

}  // namespace troupe::gateway
