#include "gateway/sequence.hpp"

#include <string>

#include "gateway/text.hpp"
#include "proto/sequence_id.hpp"

namespace troupe::gateway {

namespace {

absl::Status CheckId(std::string_view id) {
  if (proto::IsSequenceId(id)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      Cat("the id of a sequence has ", id.size(),
          " characters, or other ones than letters, digits, '-', '_' and '.'; use a number, or 1 to ",
          proto::kLongestSequenceId, " of those"));
}

absl::Status ReadId(JsonCursor& cursor, std::string& id) {
  std::uint64_t number = 0;
  std::string_view text;
  if (cursor.Peek() == JsonCursor::Kind::kNumber) {
    if (cursor.ReadUint(number) && number != 0) id = std::to_string(number);
  } else if (cursor.ReadString(text)) {
    id = text;
  }
  if (!cursor.ok() || id.empty()) return cursor.status();
  return CheckId(id);
}

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t";
  const auto begin = text.find_first_not_of(kSpace);
  return begin == std::string_view::npos ? std::string_view()
                                         : text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::string Text(const Sequence& sequence) {
  return Cat("'", sequence.id, "'", sequence.start ? " with start" : "", sequence.end ? " with end" : "");
}

}  // namespace

absl::Status ReadSequenceParameter(JsonCursor& cursor, std::string_view key, Sequence& sequence) {
  if (key == "sequence_id") return ReadId(cursor, sequence.id);
  if (key == "sequence_start") {
    cursor.ReadBool(sequence.start);
  } else if (key == "sequence_end") {
    cursor.ReadBool(sequence.end);
  } else {
    cursor.Skip();
  }
  return cursor.status();
}

absl::StatusOr<Sequence> ReadSequenceHeader(std::string_view header) {
  Sequence sequence;
  if (header.empty()) return sequence;
  auto end = header.find(';');
  sequence.id = Trimmed(header.substr(0, end));
  if (const auto status = CheckId(sequence.id); !status.ok())
    return absl::InvalidArgumentError(Cat("the header ", kSequenceHeader, ": ", Message(status)));
  while (end != std::string_view::npos) {
    header.remove_prefix(end + 1);
    end = header.find(';');
    const auto word = Trimmed(header.substr(0, end));
    bool& flag = word == "start" ? sequence.start : sequence.end;
    if ((word != "start" && word != "end") || flag) {
      return absl::InvalidArgumentError(
          Cat("the header ", kSequenceHeader, " has '", word.substr(0, 40),
              "' behind the id; it may have 'start' and 'end' there, each once, "
              "with semicolons between"));
    }
    flag = true;
  }
  return sequence;
}

absl::StatusOr<Sequence> JoinSequences(const Sequence& json, const Sequence& header) {
  if (json.id.empty() && (json.start || json.end)) {
    return absl::InvalidArgumentError(Cat("the request has ",
                                          json.start ? "\"sequence_start\"" : "\"sequence_end\"",
                                          " and no \"sequence_id\"; name the sequence, or leave it out"));
  }
  if (header.id.empty()) return json;
  if (json.id.empty() || json == header) return header;
  return absl::InvalidArgumentError(Cat("the JSON names the sequence ", Text(json), ", and the header ",
                                        kSequenceHeader, " ", Text(header), "; give one of them"));
}

}  // namespace troupe::gateway
