#include "gateway/json_cursor.hpp"

#include <array>
#include <charconv>

#include "absl/strings/ascii.h"
#include "gateway/json_text.hpp"
#include "gateway/text.hpp"

namespace troupe::gateway {

namespace {

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}

}  // namespace

bool JsonCursor::Fail(std::string_view what) {
  if (status_.ok()) {
    status_ =
        absl::InvalidArgumentError(Cat("JSON: ", what, " at byte ", at_ < text_.size() ? at_ : text_.size()));
  }
  return false;
}

std::string_view JsonCursor::WrongWord() const {
  std::size_t end = at_;
  while (end < text_.size() && absl::ascii_isalpha(static_cast<unsigned char>(text_[end]))) ++end;
  const auto word = text_.substr(at_, end - at_);
  const bool known =
      word == "null" || word == "true" || word == "false" || word == "NaN" || word == "Infinity";
  return known ? std::string_view() : word;
}

bool JsonCursor::FailExpected(std::string_view what) {
  constexpr std::array<std::string_view, 7> kFound = {"an object", "an array", "text",   "a number",
                                                      "a boolean", "null",     "nothing"};
  const Kind found = Peek();
  if (const auto word = WrongWord(); !word.empty()) {
    const bool number = allow_non_finite_ && what == "number";
    return Fail(Cat(what, number ? ", NaN, Infinity or -Infinity" : "", " expected, found '",
                    word.substr(0, 20), "'"));
  }
  if (found == Kind::kNothing) return Fail(Cat(what, " expected"));
  return Fail(Cat(what, " expected, found ", kFound[static_cast<std::size_t>(found)]));
}

void JsonCursor::SkipSpace() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c != ' ' && c != '\n' && c != '\r' && c != '\t') return;
    ++at_;
  }
}

JsonCursor::Kind JsonCursor::Peek() {
  if (!ok()) return Kind::kNothing;
  SkipSpace();
  if (at_ >= text_.size()) return Kind::kNothing;
  switch (text_[at_]) {
    case '{':
      return Kind::kObject;
    case '[':
      return Kind::kArray;
    case '"':
      return Kind::kString;
    case 't':
    case 'f':
      return Kind::kBool;
    case 'n':
      return Kind::kNull;
    case 'N':
    case 'I':
      return allow_non_finite_ ? Kind::kNumber : Kind::kNothing;
    default:
      return text_[at_] == '-' || IsDigit(text_[at_]) ? Kind::kNumber : Kind::kNothing;
  }
}

bool JsonCursor::Enter(char open) {
  if (!ok()) return false;
  SkipSpace();
  if (at_ >= text_.size() || text_[at_] != open) return FailExpected(open == '{' ? "object" : "array");
  if (depth_ + 1 >= kMaxDepth) return Fail("nested deeper than 63 levels");
  ++at_;
  first_ |= std::uint64_t{1} << ++depth_;
  return true;
}

bool JsonCursor::NextItem(char close) {
  if (!ok()) return false;
  SkipSpace();
  if (at_ >= text_.size()) return Fail("unexpected end");
  const std::uint64_t bit = std::uint64_t{1} << depth_;
  if (text_[at_] == close) {
    ++at_;
    first_ &= ~bit;
    --depth_;
    return false;
  }
  if ((first_ & bit) != 0) {
    first_ &= ~bit;
    return true;
  }
  if (text_[at_] != ',') return Fail(close == '}' ? "',' or '}' expected" : "',' or ']' expected");
  ++at_;
  return true;
}

bool JsonCursor::BeginObject() {
  return Enter('{');
}
bool JsonCursor::BeginArray() {
  return Enter('[');
}
bool JsonCursor::NextElement() {
  return NextItem(']');
}

bool JsonCursor::NextMember(std::string_view& key) {
  if (!NextItem('}') || !ReadString(key)) return false;
  SkipSpace();
  if (at_ >= text_.size() || text_[at_] != ':') return Fail("':' expected");
  ++at_;
  return true;
}

bool JsonCursor::ReadString(std::string_view& value) {
  if (!ok()) return false;
  SkipSpace();
  if (at_ >= text_.size() || text_[at_] != '"') return FailExpected("string");
  const std::size_t start = ++at_;
  // Most strings need no unescaping and stay views of the text.
  while (at_ < text_.size() && text_[at_] != '\\') {
    if (text_[at_] == '"') {
      value = text_.substr(start, at_++ - start);
      return true;
    }
    if (!ReadUtf8()) return false;
  }
  unescaped_.assign(text_.substr(start, at_ - start));
  while (at_ < text_.size()) {
    if (text_[at_] == '"') {
      ++at_;
      value = unescaped_;
      return true;
    }
    if (text_[at_] == '\\') {
      if (!ReadEscape()) return false;
      continue;
    }
    const std::size_t from = at_;
    if (!ReadUtf8()) return false;
    unescaped_.append(text_.substr(from, at_ - from));
  }
  return Fail("unterminated string");
}

bool JsonCursor::ReadUtf8() {
  const auto lead = static_cast<unsigned char>(text_[at_]);
  if (lead < 0x20) return Fail("unescaped control character in a string");
  const std::size_t length = Utf8Length(text_.substr(at_, 4));
  if (length == 0) return Fail("a string is not UTF-8");
  at_ += length;
  return true;
}

bool JsonCursor::ReadHex4(std::uint32_t& value) {
  if (text_.size() - at_ < 4) return Fail("four hexadecimal digits expected");
  const char* begin = text_.data() + at_;
  const auto [rest, error] = std::from_chars(begin, begin + 4, value, 16);
  if (error != std::errc() || rest != begin + 4) return Fail("four hexadecimal digits expected");
  at_ += 4;
  return true;
}

bool JsonCursor::ReadEscape() {
  constexpr std::string_view kNames = "\"\\/bfnrt";
  constexpr std::string_view kValues = "\"\\/\b\f\n\r\t";
  ++at_;
  if (at_ >= text_.size()) return Fail("unterminated string");
  const char c = text_[at_++];
  if (const std::size_t simple = kNames.find(c); simple != std::string_view::npos) {
    unescaped_ += kValues[simple];
    return true;
  }
  if (c != 'u') return Fail("unknown escape in a string");
  std::uint32_t code = 0;
  if (!ReadHex4(code)) return false;
  if (code >= 0xD800 && code < 0xDC00) {
    std::uint32_t low = 0;
    if (text_.substr(at_, 2) != "\\u") return Fail("half of a surrogate pair");
    at_ += 2;
    if (!ReadHex4(low)) return false;
    if (low < 0xDC00 || low > 0xDFFF) return Fail("half of a surrogate pair");
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  } else if (code >= 0xDC00 && code <= 0xDFFF) {
    return Fail("half of a surrogate pair");
  }
  AppendUtf8(unescaped_, code);
  return true;
}

bool JsonCursor::ReadNumber(std::string_view& token) {
  if (!ok()) return false;
  SkipSpace();
  const std::size_t start = at_;
  if (allow_non_finite_) {
    for (const std::string_view word : {"NaN", "Infinity", "-Infinity"}) {
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      token = word;
      return true;
    }
  }
  const char* p = text_.data() + at_;
  const char* const end = text_.data() + text_.size();
  const auto digits = [&] {
    const char* const from = p;
    while (p < end && IsDigit(*p)) ++p;
    return p > from;
  };
  if (p < end && *p == '-') ++p;
  if (p < end && *p == '0') {
    ++p;
  } else if (!digits()) {
    const bool minus = p > text_.data() + at_;
    return minus ? Fail("digits expected after the minus of a number") : FailExpected("number");
  }
  if (p < end && *p == '.' && (++p, !digits())) return Fail("digits expected after the point of a number");
  if (p < end && (*p == 'e' || *p == 'E')) {
    ++p;
    if (p < end && (*p == '+' || *p == '-')) ++p;
    if (!digits()) return Fail("digits expected in the exponent of a number");
  }
  at_ = static_cast<std::size_t>(p - text_.data());
  token = text_.substr(start, at_ - start);
  return true;
}

bool JsonCursor::ReadUint(std::uint64_t& value) {
  std::string_view token;
  if (!ReadNumber(token)) return false;
  const auto [rest, error] = std::from_chars(token.data(), token.data() + token.size(), value);
  if (error == std::errc() && rest == token.data() + token.size()) return true;
  at_ -= token.size();
  return Fail(Cat("'", token, "' is not an integer from 0 to 18446744073709551615"));
}

bool JsonCursor::Literal(std::string_view word) {
  if (text_.substr(at_, word.size()) != word) return Fail(Cat("'", word, "' expected"));
  at_ += word.size();
  return true;
}

bool JsonCursor::ReadBool(bool& value) {
  if (Peek() != Kind::kBool) return FailExpected("true or false");
  value = text_[at_] == 't';
  return Literal(value ? "true" : "false");
}

bool JsonCursor::SkipNull() {
  return Peek() == Kind::kNull && Literal("null");
}

bool JsonCursor::Skip() {
  std::string_view ignored;
  bool ignored_bool = false;
  switch (Peek()) {
    case Kind::kObject:
      if (!BeginObject()) return false;
      while (NextMember(ignored)) {
        if (!Skip()) return false;
      }
      return ok();
    case Kind::kArray:
      if (!BeginArray()) return false;
      while (NextElement()) {
        if (!Skip()) return false;
      }
      return ok();
    case Kind::kString:
      return ReadString(ignored);
    case Kind::kNumber:
      return ReadNumber(ignored);
    case Kind::kBool:
      return ReadBool(ignored_bool);
    case Kind::kNull:
      return Literal("null");
    case Kind::kNothing:
      return Fail("value expected");
  }
  return false;
}

bool JsonCursor::Finish() {
  if (!ok()) return false;
  SkipSpace();
  return at_ == text_.size() || Fail("unexpected text after the value");
}

}  // namespace troupe::gateway
