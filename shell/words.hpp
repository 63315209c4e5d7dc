// WORDS: a line of the interactive shell, cut as a person expects: quotes, backslashes, comments. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace troupe::shell {

// 'single' quotes take everything as it is; in "double" quotes a backslash frees `"` and `\`; outside it
// frees any character. A '#' that begins a word begins a comment.
[[nodiscard]] absl::StatusOr<std::vector<std::string>> SplitWords(std::string_view line);

// A line that is still being typed: whole words, and the last one, which may be empty.
struct PartialLine {
  std::vector<std::string> words;
  std::string stem;       // of the last word, without its quotes
  std::size_t begin = 0;  // where in the line the last word begins
  char quote = 0;         // the quote that is open, or 0
};
[[nodiscard]] PartialLine SplitPartial(std::string_view line);

// A word as it must be typed to be read back: quoted when it needs it, inside of `quote` when one is open.
[[nodiscard]] std::string QuoteWord(std::string_view word, char quote = 0);

}  // namespace troupe::shell
