#include "shell/words.hpp"

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "shell/exit_code.hpp"
#include "shell/text/cat.hpp"

namespace troupe::shell {

namespace {

struct Scan {
  std::vector<std::string> words;
  std::string word;
  std::size_t begin = 0;
  bool in_word = false;
  bool in_comment = false;
  bool loose_backslash = false;
  char quote = 0;
};

bool Frees(char quote, char next) {
  return quote == 0 || (quote == '"' && (next == '"' || next == '\\'));
}

Scan ScanLine(std::string_view line) {
  Scan scan;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (scan.quote == 0 && absl::ascii_isspace(static_cast<unsigned char>(c))) {
      if (scan.in_word) scan.words.push_back(std::move(scan.word));
      scan.word.clear();
      scan.in_word = false;
      continue;
    }
    if (!scan.in_word && c == '#') {
      scan.in_comment = true;
      return scan;
    }
    if (!scan.in_word) scan.begin = i;
    scan.in_word = true;
    if (c == '\\' && scan.quote != '\'') {
      if (i + 1 == line.size()) {
        scan.loose_backslash = true;
      } else if (Frees(scan.quote, line[i + 1])) {
        scan.word += line[++i];
      } else {
        scan.word += c;
      }
    } else if (c == scan.quote) {
      scan.quote = 0;
    } else if (scan.quote == 0 && (c == '\'' || c == '"')) {
      scan.quote = c;
    } else {
      scan.word += c;
    }
  }
  return scan;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> SplitWords(std::string_view line) {
  Scan scan = ScanLine(line);
  if (scan.quote != 0) return UsageError(Cat("a quote (", std::string(1, scan.quote), ") is not closed"));
  if (scan.loose_backslash) return UsageError("a backslash stands at the end of the line");
  if (scan.in_word) scan.words.push_back(std::move(scan.word));
  return std::move(scan.words);
}

PartialLine SplitPartial(std::string_view line) {
  Scan scan = ScanLine(line);
  if (!scan.in_word) return {std::move(scan.words), "", line.size(), 0};
  return {std::move(scan.words), std::move(scan.word), scan.begin, scan.quote};
}

std::string QuoteWord(std::string_view word, char quote) {
  if (quote == '\'' && word.find('\'') == std::string_view::npos) return Cat("'", word, "'");
  if (quote == '"' || quote == '\'')
    return Cat("\"", absl::StrReplaceAll(ForAbsl(word), {{"\\", "\\\\"}, {"\"", "\\\""}}), "\"");
  std::string out;
  for (const char c : word) {
    const bool plain = absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                       static_cast<unsigned char>(c) >= 0x80 ||
                       std::string_view("_-./=:,+@%~^").find(c) != std::string_view::npos;
    if (!plain) out += '\\';
    out += c;
  }
  return out.empty() ? "''" : out;
}

}  // namespace troupe::shell
