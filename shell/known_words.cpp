#include "shell/known_words.hpp"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "base/nearest.hpp"
#include "shell/command_line.hpp"
#include "shell/companions.hpp"
#include "shell/exit_code.hpp"
#include "shell/text/cat.hpp"
#include "shell/text/text.hpp"
#include "shell/verb.hpp"

namespace troupe::shell {

namespace {

constexpr char kProfileGroup[] = "profile", kUsualProfileVerb[] = "run";

bool Contains(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// "deploy" alone: the verb of a group was meant.
std::string Meant(const std::string& group, const std::string& word, const std::vector<std::string>& known) {
  std::vector<std::string> whole;
  for (const auto& verb : Verbs())
    if (group.empty() && verb.name == word) whole.push_back(Cat("'", verb.words(), "'"));
  if (!whole.empty()) return Cat("; did you mean ", absl::StrJoin(whole, " or "), "?");
  return DidYouMean(word, known);
}

// One that may be meant is enough to go on; else all are named.
std::string MeantOr(const std::string& meant, const std::vector<std::string>& known, const std::string& see) {
  return meant.empty() ? Cat("; known here: ", absl::StrJoin(known, ", "), see)
                       : Cat(meant, " ", see.substr(2));
}

}  // namespace

std::vector<std::string> WordsBehind(const std::string& group) {
  std::vector<std::string> words;
  for (const auto& verb : Verbs()) {
    const auto& word = verb.group == group ? verb.name : group.empty() ? verb.group : group;
    if (word != group && !Contains(words, word)) words.push_back(word);
  }
  if (!group.empty()) return words;
  for (const auto& verb : CompanionVerbs()) words.push_back(verb.word());
  words.insert(words.end(), {"shell", "help"});
  return words;
}

std::vector<std::string> WithUsualVerb(std::vector<std::string> words) {
  const auto own = WithoutOptions(words);
  if (own.size() < 2 || own[0] != kProfileGroup || Contains(WordsBehind(kProfileGroup), own[1])) return words;
  const auto group = std::find(words.begin(), words.end(), own[0]);
  words.insert(group + 1, kUsualProfileVerb);
  return words;
}

std::vector<std::string> WithoutOptions(const std::vector<std::string>& words) {
  std::vector<std::string> left;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (!absl::StartsWith(words[i], "-")) {
      left.push_back(words[i]);
      continue;
    }
    for (const auto& option : GlobalArguments())
      if (option.kind != Kind::kFlag && option.name == words[i]) ++i;
  }
  return left;
}

absl::Status CheckWords(const std::vector<std::string>& words) {
  const auto known = WordsBehind("");
  if (words.empty())
    return UsageError(Cat("say what: ", absl::StrJoin(known, ", "), "; see 'troupe --help'"));
  const auto& first = words[0];
  if (IsForCompanion(words))
    return UsageError(Cat("'", first, "' is the first word where it is used: troupe ", first, " ..."));
  if (!Contains(known, first)) {
    return UsageError(Cat("no such command: '", Printable(first), "'",
                          MeantOr(Meant("", first, known), known, "; see 'troupe --help'")));
  }
  if (GroupSummary(first).empty()) return absl::OkStatus();
  const auto behind = WordsBehind(first);
  const auto see = Cat("; see 'troupe ", first, " --help'");
  if (words.size() == 1) return UsageError(Cat("say what: ", absl::StrJoin(behind, ", "), see));
  if (Contains(behind, words[1])) return absl::OkStatus();
  return UsageError(Cat("no such command: '", first, " ", Printable(words[1]), "'",
                        MeantOr(Meant(first, words[1], behind), behind, see)));
}

}  // namespace troupe::shell
