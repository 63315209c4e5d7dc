#include "shell/completion.hpp"

#include <algorithm>
#include <filesystem>
#include <set>

#include "absl/strings/match.h"
#include "shell/command_line.hpp"
#include "shell/known_words.hpp"
#include "shell/text/cat.hpp"
#include "shell/words.hpp"

namespace troupe::shell {

namespace {

constexpr Duration kFresh = std::chrono::seconds(2);
constexpr Duration kPatience = std::chrono::milliseconds(800);
constexpr std::size_t kMostFiles = 10000;

std::vector<std::string> Files(const std::string& stem) {
  namespace fs = std::filesystem;
  const auto slash = stem.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : stem.substr(0, slash + 1);
  const std::string start = stem.substr(folder.size());
  std::vector<std::string> found;
  std::error_code error;
  fs::directory_iterator entry(folder.empty() ? "." : folder, error);
  for (; !error && entry != fs::directory_iterator() && found.size() < kMostFiles; entry.increment(error)) {
    const auto name = entry->path().filename().string();
    // Hidden files show up when they are asked for, as in other shells.
    if (!absl::StartsWith(name, start) || (start.empty() && name[0] == '.')) continue;
    std::error_code unknown;
    found.push_back(Cat(folder, name, entry->is_directory(unknown) ? "/" : ""));
  }
  return found;
}

std::vector<std::string> Values(Kind kind, const std::string& stem, const NameSource& names) {
  switch (kind) {
    case Kind::kFile:
      return Files(stem);
    case Kind::kTensorFile: {
      const auto equals = stem.find('=');
      if (equals == std::string::npos) return Files(stem);
      auto files = Files(stem.substr(equals + 1));
      for (auto& file : files) file = stem.substr(0, equals + 1) + file;
      return files;
    }
    case Kind::kText:
    case Kind::kFlag:
    case Kind::kDuration:
    case Kind::kNumber:
    case Kind::kVersion:
      return {};
    default:
      return names(kind);
  }
}

const Argument* FindOption(const Verb* verb, const std::string& word) {
  if (verb != nullptr)
    for (const auto& argument : verb->arguments)
      if (argument.name == word) return &argument;
  for (const auto& argument : GlobalArguments())
    if (argument.name == word) return &argument;
  return nullptr;
}

// Where the words before the cursor have led.
struct Place {
  std::string group;
  const Verb* verb = nullptr;
  std::size_t positional = 0;         // that were given
  const Argument* awaited = nullptr;  // an option whose value comes next
  std::set<std::string> given;
  bool lost = false;  // the line has a word that begins no command
};

void Step(Place& place, const std::string& word) {
  if (place.awaited != nullptr) {
    place.awaited = nullptr;
    return;
  }
  if (absl::StartsWith(word, "-")) {
    place.given.insert(word);
    const auto* option = FindOption(place.verb, word);
    if (option != nullptr && option->kind != Kind::kFlag) place.awaited = option;
    return;
  }
  if (place.verb != nullptr) {
    ++place.positional;
    return;
  }
  for (const auto& verb : Verbs()) {
    if (verb.group == place.group && verb.name == word) {
      place.verb = &verb;
      return;
    }
  }
  const bool is_group = place.group.empty() && !GroupSummary(word).empty();
  if (is_group) {
    place.group = word;
  } else {
    place.lost = true;
  }
}

std::vector<std::string> CommandWords(const Place& place) {
  std::set<std::string> words;
  for (const auto& verb : Verbs()) {
    if (verb.group == place.group) words.insert(verb.name);
    if (place.group.empty() && !verb.group.empty()) words.insert(verb.group);
  }
  if (place.group.empty()) words.insert({"help", "exit", "quit"});
  return {words.begin(), words.end()};
}

std::vector<std::string> Options(const Place& place) {
  std::vector<std::string> options = {"--help"};
  const auto add = [&](const std::vector<Argument>& arguments) {
    for (const auto& argument : arguments)
      if (!argument.positional() && (argument.repeated || !place.given.contains(argument.name)))
        options.push_back(argument.name);
  };
  if (place.verb != nullptr) add(place.verb->arguments);
  add(GlobalArguments());
  return options;
}

std::vector<std::string> CandidatesAt(const Place& place, const std::string& stem, const NameSource& names) {
  if (place.lost) return {};
  if (place.awaited != nullptr) return Values(place.awaited->kind, stem, names);
  if (absl::StartsWith(stem, "-")) return Options(place);
  if (place.verb == nullptr) {
    auto words = CommandWords(place);
    // A function behind `profile` alone stands for the usual verb (WithUsualVerb).
    if (place.group == "profile")
      for (auto& name : names(Kind::kFunction)) words.push_back(std::move(name));
    return words;
  }
  std::size_t index = 0;
  for (const auto& argument : place.verb->arguments)
    if (argument.positional() && index++ == place.positional) return Values(argument.kind, stem, names);
  return {};
}

}  // namespace

std::string Completion::CommonPrefix() const {
  if (candidates.empty()) return "";
  std::string prefix = candidates.front();
  for (const auto& candidate : candidates) {
    const auto different =
        std::mismatch(prefix.begin(), prefix.end(), candidate.begin(), candidate.end()).first;
    prefix.erase(different, prefix.end());
  }
  // Never half a character of UTF-8.
  while (!prefix.empty() && prefix.size() < candidates.front().size() &&
         (static_cast<unsigned char>(candidates.front()[prefix.size()]) & 0xC0) == 0x80)
    prefix.pop_back();
  return prefix;
}

Completion Complete(std::string_view line, const NameSource& names) {
  auto partial = SplitPartial(line);
  if (!partial.words.empty() && partial.words[0] == "help") partial.words.erase(partial.words.begin());
  Place place;
  for (const auto& word : WithUsualVerb(partial.words)) Step(place, word);
  Completion completion{partial.begin, partial.quote, CandidatesAt(place, partial.stem, names)};
  std::erase_if(completion.candidates, [&](const auto& one) { return !absl::StartsWith(one, partial.stem); });
  std::sort(completion.candidates.begin(), completion.candidates.end());
  completion.candidates.erase(std::unique(completion.candidates.begin(), completion.candidates.end()),
                              completion.candidates.end());
  return completion;
}

std::vector<std::string> ClusterNames::operator()(Kind kind) {
  const Time now = session_.console().Now();
  const auto found = known_.find(kind);
  if (found != known_.end() && now - found->second.at < kFresh) return found->second.names;
  const GlobalOptions before = session_.options();
  GlobalOptions quick = before;
  quick.timeout = kPatience;
  session_.Configure(quick);
  auto names = Fetch(kind);
  session_.Configure(before);
  known_[kind] = {session_.console().Now(), names};
  return names;
}

std::vector<std::string> ClusterNames::Fetch(Kind kind) {
  proto::AdminRequest request;
  std::vector<std::string> names;
  const auto ask = [&](auto add) {
    const auto reply = session_.Ask(request);
    if (reply.ok()) add(*reply);
  };
  if (kind == Kind::kFunction || kind == Kind::kServable) {
    request.mutable_list_functions();
    ask([&](const auto& reply) {
      for (const auto& one : reply.functions()) names.push_back(one.record().key().name());
    });
  }
  if (kind == Kind::kWorkflow || kind == Kind::kServable) {
    request.mutable_list_workflows();
    ask([&](const auto& reply) {
      for (const auto& one : reply.workflows()) names.push_back(one.spec().name());
    });
  }
  if (kind == Kind::kNode) {
    request.mutable_cluster_status();
    ask([&](const auto& reply) {
      for (const auto& one : reply.status().members())
        if (one.member().kind() == proto::MEMBER_NODE) names.push_back(one.member().name());
    });
  }
  if (kind == Kind::kGpu) {
    request.mutable_list_gpus();
    ask([&](const auto& reply) {
      for (const auto& one : reply.gpus()) names.push_back(Cat(one.node(), "/", one.gpu().index()));
    });
  }
  if (kind == Kind::kRun) {
    request.mutable_list_runs();
    ask([&](const auto& reply) {
      for (const auto& one : reply.runs()) names.push_back(one.start().run());
    });
  }
  return names;
}

}  // namespace troupe::shell
