#include "gateway/json_text.hpp"

namespace troupe::gateway {

namespace {

// Length of the run at the start of `text` that needs no escape and is plain ASCII.
std::size_t PlainLength(std::string_view text) {
  std::size_t n = 0;
  while (n < text.size()) {
    const auto c = static_cast<unsigned char>(text[n]);
    if (c < 0x20 || c >= 0x80 || c == '"' || c == '\\') break;
    ++n;
  }
  return n;
}

void AppendEscape(std::string& out, char c) {
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      out += "\\u00";
      out += "0123456789abcdef"[static_cast<unsigned char>(c) >> 4];
      out += "0123456789abcdef"[static_cast<unsigned char>(c) & 0xF];
  }
}

// Stops at the first byte that is not valid UTF-8 and returns its offset; text.size() when all was appended.
std::size_t AppendUntilBad(std::string& out, std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t plain = PlainLength(text.substr(at));
    out.append(text.substr(at, plain));
    at += plain;
    if (at == text.size()) break;
    const std::size_t length = Utf8Length(text.substr(at, 4));
    if (length == 0) return at;
    if (length == 1) {
      AppendEscape(out, text[at]);
    } else {
      out.append(text.substr(at, length));
    }
    at += length;
  }
  return at;
}

}  // namespace

void AppendUtf8(std::string& out, std::uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
    return;
  }
  if (code < 0x800) {
    out += static_cast<char>(0xC0 | (code >> 6));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | (code >> 12));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (code >> 18));
    out += static_cast<char>(0x80 | ((code >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
  }
  out += static_cast<char>(0x80 | (code & 0x3F));
}

std::size_t Utf8Length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const auto tail = [&](std::size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return tail(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const bool range = lead == 0xE0 ? byte(1) >= 0xA0 : lead == 0xED ? byte(1) <= 0x9F : true;
    return range && tail(1) && tail(2) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const bool range = lead == 0xF0 ? byte(1) >= 0x90 : lead == 0xF4 ? byte(1) <= 0x8F : true;
    return range && tail(1) && tail(2) && tail(3) ? 4 : 0;
  }
  return 0;
}

bool AppendJsonString(std::string& out, std::string_view text) {
  const std::size_t before = out.size();
  out += '"';
  if (AppendUntilBad(out, text) != text.size()) {
    out.resize(before);
    return false;
  }
  out += '"';
  return true;
}

void AppendJsonText(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    text.remove_prefix(AppendUntilBad(out, text));
    if (text.empty()) break;
    out += '?';
    text.remove_prefix(1);
  }
  out += '"';
}

}  // namespace troupe::gateway
