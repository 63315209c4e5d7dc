#include "storage/audit_line.hpp"

#include <algorithm>
#include <boost/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace troupe::storage {

namespace {

namespace json = boost::json;

constexpr std::size_t kMostText = 1024;

// The length of the UTF-8 character at the beginning of `text`; 0: there is none.
std::size_t CharacterAt(std::string_view text) {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  const std::size_t size = byte(0) < 0x80   ? 1
                           : byte(0) < 0xc2 ? 0
                           : byte(0) < 0xe0 ? 2
                           : byte(0) < 0xf0 ? 3
                                            : 4;
  if (byte(0) > 0xf4 || size > text.size()) return 0;
  // Longer than needed, halves of pairs, and beyond the last character.
  const auto second = size > 2 ? byte(1) : 0x80;
  if ((byte(0) == 0xe0 && second < 0xa0) || (byte(0) == 0xed && second > 0x9f) ||
      (byte(0) == 0xf0 && second < 0x90) || (byte(0) == 0xf4 && second > 0x8f))
    return 0;
  for (std::size_t at = 1; at < size; ++at)
    if ((byte(at) & 0xc0) != 0x80) return 0;
  return size;
}

json::string Clean(std::string_view text) {
  std::string out;
  while (!text.empty() && out.size() < kMostText) {
    const auto size = CharacterAt(text);
    const bool bad = size == 0 || static_cast<unsigned char>(text[0]) < 0x20 || text[0] == 0x7f;
    out.append(bad ? "?" : text.substr(0, size));
    text.remove_prefix(std::max<std::size_t>(1, size));
  }
  return json::string(out);
}

std::string TextOf(const json::object& object, const char* key) {
  const auto* value = object.if_contains(key);
  const auto* text = value == nullptr ? nullptr : value->if_string();
  return text == nullptr ? std::string() : std::string(text->data(), text->size());
}

}  // namespace

void SetResult(const absl::Status& status, AuditLine& line) {
  line.result = status.ok() ? std::string(kAuditDone) : absl::StatusCodeToString(status.code());
  line.message = std::string(status.message());
}

std::string FormatAuditLine(const AuditLine& line) {
  json::object object;
  object["number"] = line.number;
  if (line.change > 0) object["change"] = line.change;
  object["time"] =
      absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::FromUnixNanos(line.unix_ns), absl::UTCTimeZone());
  object["who"] = Clean(line.who);
  if (!line.from.empty()) object["from"] = Clean(line.from);
  if (!line.via.empty()) object["via"] = Clean(line.via);
  object["action"] = Clean(line.action);
  object["what"] = Clean(line.what);
  object["result"] = Clean(line.result);
  if (!line.message.empty()) object["message"] = Clean(line.message);
  return json::serialize(object) + "\n";
}

absl::StatusOr<AuditLine> ParseAuditLine(std::string_view text) {
  json::error_code error;
  const auto value = json::parse({text.data(), text.size()}, error);
  const auto* object = error ? nullptr : value.if_object();
  absl::Time time;
  std::string why;
  if (object == nullptr || !object->contains("number") || !object->at("number").is_number() ||
      !absl::ParseTime(absl::RFC3339_full, TextOf(*object, "time"), &time, &why))
    return absl::DataLossError(
        absl::StrCat("this is not a line of an audit: ", std::string(text.substr(0, 80))));
  AuditLine line;
  line.number = object->at("number").to_number<std::uint64_t>(error);
  if (const auto* change = object->if_contains("change"); change != nullptr && change->is_number())
    line.change = change->to_number<std::uint64_t>(error);
  line.unix_ns = absl::ToUnixNanos(time);
  line.who = TextOf(*object, "who");
  line.from = TextOf(*object, "from");
  line.via = TextOf(*object, "via");
  line.action = TextOf(*object, "action");
  line.what = TextOf(*object, "what");
  line.result = TextOf(*object, "result");
  line.message = TextOf(*object, "message");
  return line;
}

bool Matches(const AuditLine& line, const AuditQuery& query) {
  const bool who = query.who.empty() || line.who == query.who || line.who.starts_with(query.who + "/");
  return who && (line.action.find(query.what) != std::string::npos ||
                 line.what.find(query.what) != std::string::npos);
}

}  // namespace troupe::storage
