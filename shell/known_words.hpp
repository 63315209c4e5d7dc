// KNOWN WORDS: which words begin a command, and what the shell says of a word that begins none. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace troupe::shell {

// Behind no word, or behind a group's name ("function"), in the order of help.
[[nodiscard]] std::vector<std::string> WordsBehind(const std::string& group);

// A group's usual verb may be left out: `profile digits` becomes `profile run digits`.
[[nodiscard]] std::vector<std::string> WithUsualVerb(std::vector<std::string> words);
// The words of a line that are neither options nor values of options which every verb takes.
[[nodiscard]] std::vector<std::string> WithoutOptions(const std::vector<std::string>& words);

// The user's error when `words` (without options) begin no command: that one is missing, or which is not
// known and which may have been meant. OK when a verb, a group alone excepted, stands there.
[[nodiscard]] absl::Status CheckWords(const std::vector<std::string>& words);

}  // namespace troupe::shell
