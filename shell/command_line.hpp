// COMMAND LINE: words to a verb and its checked arguments, and the running of it. One way for the program's
// own arguments and for lines of the interactive shell.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "shell/exit_code.hpp"
#include "shell/session.hpp"
#include "shell/verb.hpp"

namespace troupe::shell {

struct Command {
  const Verb* verb = nullptr;  // null: `text` is the whole answer (help, version), or the shell is wanted
  bool shell = false;
  Arguments arguments;
  GlobalOptions options;
  std::string text;
};

// `defaults` hold where the words say nothing. Errors are the user's (exit code 2).
[[nodiscard]] absl::StatusOr<Command> ParseCommand(std::vector<std::string> words,
                                                   const GlobalOptions& defaults);

// Parses and runs; prints what went wrong as one line: "troupe: what was asked: what was found". With --json,
// what the cluster refused is an object on standard output too.
ExitCode RunCommand(Session& session, const std::vector<std::string>& words, const GlobalOptions& defaults);
// The same for a command that is parsed.
ExitCode RunParsed(Session& session, const Command& command, const std::vector<std::string>& words);

// One error line of the program.
void PrintError(Console& console, const std::vector<std::string>& words, const absl::Status& status);

// Options that every verb takes: "--manager", "--json", ...
[[nodiscard]] const std::vector<Argument>& GlobalArguments();
// All verbs by group, global options, exit codes.
[[nodiscard]] std::string RootHelp();

}  // namespace troupe::shell
