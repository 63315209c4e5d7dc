#include "shell/program.hpp"

#include "shell/command_line.hpp"
#include "shell/companions.hpp"
#include "shell/completion.hpp"
#include "shell/interactive.hpp"
#include "shell/known_words.hpp"

namespace troupe::shell {

namespace {

// What bash, zsh and fish ask at each Tab (deploy/packages/completion): `troupe __complete LINE`, where LINE
// is what stands behind `troupe` up to the cursor. It is not a command for people, and no help shows it.
constexpr char kCandidates[] = "__complete";

ExitCode ShowCandidates(Session& session, const std::vector<std::string>& words,
                        const GlobalOptions& defaults) {
  session.Configure(defaults);
  const std::string line = words.size() > 1 ? words[1] : "";
  ClusterNames names(session);
  auto candidates = Complete(line, [&](Kind kind) { return names(kind); }).candidates;
  // Behind `troupe` itself other words begin a command than in its interactive shell.
  if (line.find_first_of(" -") == std::string::npos) {
    candidates = WordsBehind("");
    std::erase_if(candidates, [&](const auto& word) { return !word.starts_with(line); });
  }
  for (const auto& candidate : candidates) session.out() << candidate << '\n';
  session.out() << std::flush;
  return ExitCode::kOk;
}

}  // namespace

ExitCode RunProgram(Session& session, const std::vector<std::string>& words, const std::string& manager,
                    const std::string& tls_dir) {
  GlobalOptions defaults;
  defaults.tls_dir = tls_dir;
  if (!manager.empty()) defaults.manager = manager;
  if (words.empty()) {
    session.console().err() << RootHelp() << std::flush;
    return ExitCode::kUsage;
  }
  if (words[0] == kCandidates) return ShowCandidates(session, words, defaults);
  if (IsForCompanion(words)) return BecomeCompanion(session.console(), words);
  if (words[0] == "help" && IsForCompanion({words.begin() + 1, words.end()})) {
    auto asked = std::vector<std::string>(words.begin() + 1, words.end());
    asked.emplace_back("--help");
    return BecomeCompanion(session.console(), asked);
  }
  const auto command = ParseCommand(words, defaults);
  if (!command.ok()) {
    PrintError(session.console(), words, command.status());
    return ExitCodeOf(command.status());
  }
  return command->shell ? RunShell(session, command->options) : RunParsed(session, *command, words);
}

}  // namespace troupe::shell
