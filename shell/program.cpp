#include "shell/program.hpp"

#include "shell/command_line.hpp"
#include "shell/companions.hpp"
#include "shell/interactive.hpp"

namespace troupe::shell {

ExitCode RunProgram(Session& session, const std::vector<std::string>& words, const std::string& manager,
                    const std::string& tls_dir) {
  GlobalOptions defaults;
  defaults.tls_dir = tls_dir;
  if (!manager.empty()) defaults.manager = manager;
  if (words.empty()) {
    session.console().err() << RootHelp() << std::flush;
    return ExitCode::kUsage;
  }
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
