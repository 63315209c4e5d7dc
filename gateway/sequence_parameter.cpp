#include "gateway/sequence_parameter.hpp"

#include <string>

#include "gateway/text.hpp"

namespace troupe::gateway {

absl::Status ReadSequenceParameter(JsonCursor& cursor, std::string_view key) {
  const std::string name(key);  // `key` ends with the next read
  std::string_view text;
  bool flag = false;
  bool nothing_asked = false;
  switch (cursor.Peek()) {
    case JsonCursor::Kind::kNumber:
      nothing_asked = cursor.ReadNumber(text) && text == "0";
      break;
    case JsonCursor::Kind::kString:
      nothing_asked = cursor.ReadString(text) && text.empty();
      break;
    case JsonCursor::Kind::kBool:
      nothing_asked = cursor.ReadBool(flag) && !flag;
      break;
    default:
      cursor.Skip();
  }
  if (!cursor.ok()) return cursor.status();
  if (nothing_asked) return absl::OkStatus();
  return absl::UnimplementedError(
      Cat("parameter '", name, "' is not offered: there are no sequences of requests here. A function that ",
          "keeps something from one request to the next is deployed with 'state'"));
}

}  // namespace troupe::gateway
