#include "shell/companions.hpp"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

namespace troupe::shell {

namespace {

// Null: the command is our own.
const char* ProgramFor(const std::vector<std::string>& words) {
  if (words.empty()) return nullptr;
  const auto& verbs = CompanionVerbs();
  if (std::none_of(verbs.begin(), verbs.end(), [&](const auto& verb) { return verb.word() == words[0]; }))
    return nullptr;
  return words[0] == "store" || words[0] == "audit" ? "troupe-store" : "troupe-sim";
}

}  // namespace

bool IsForCompanion(const std::vector<std::string>& words) {
  return ProgramFor(words) != nullptr;
}

ExitCode BecomeCompanion(Console& console, const std::vector<std::string>& words) {
  std::error_code error;
  const auto here = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  const auto program = (here / ProgramFor(words)).string();
  std::vector<std::string> own = words;
  std::vector<char*> arguments = {const_cast<char*>(program.c_str())};
  for (auto& word : own) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execv(program.c_str(), arguments.data());
  console.err() << "troupe: " << words[0] << ": " << program
                << " cannot be started; it is installed beside troupe (from source: `make build`)\n";
  return ExitCode::kUsage;
}

const std::vector<CompanionVerb>& CompanionVerbs() {
  static const std::vector<CompanionVerb> kVerbs = {
      {"simulate", "A workload on a simulated cluster, under virtual time"},
      {"chaos-sim", "Schedules of faults on simulated clusters, judged by checkers"},
      {"experiment NAME", "A paper's experiment in the simulator; `experiment list` names them"},
      {"audit --data DIR", "Who changed what, from where, and how it ended; on the manager's machine"},
      {"store check|dump|backup|restore", "What a manager keeps on disk, while it is stopped"}};
  return kVerbs;
}

}  // namespace troupe::shell
