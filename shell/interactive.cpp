#include "shell/interactive.hpp"

#include <cstdlib>

#include "shell/completion.hpp"
#include "shell/line_editor.hpp"
#include "shell/text/cat.hpp"
#include "shell/words.hpp"

namespace troupe::shell {

namespace {

std::string HistoryFile() {
  const char* home = std::getenv("HOME");
  return home == nullptr || *home == '\0' ? "" : Cat(home, "/.troupe_history");
}

ExitCode RunScript(Session& session, const GlobalOptions& defaults) {
  std::string line;
  bool leave = false;
  while (!leave && session.console().ReadLine(line)) {
    const auto code = RunLine(session, line, defaults, leave);
    if (code != ExitCode::kOk) return code;
  }
  return session.console().interrupted() ? ExitCode::kInterrupted : ExitCode::kOk;
}

}  // namespace

ExitCode RunLine(Session& session, const std::string& line, const GlobalOptions& defaults, bool& leave) {
  auto words = SplitWords(line);
  if (!words.ok()) {
    PrintError(session.console(), {line}, words.status());
    return ExitCodeOf(words.status());
  }
  if (words->empty()) return ExitCode::kOk;
  if (words->size() == 1 && (words->front() == "exit" || words->front() == "quit")) {
    leave = true;
    return ExitCode::kOk;
  }
  // As it stands in the documentation, and in the history of other shells.
  if (words->front() == "troupe") words->erase(words->begin());
  return RunCommand(session, *words, defaults);
}

ExitCode RunShell(Session& session, const GlobalOptions& defaults) {
  session.Configure(defaults);
  auto& console = session.console();
  if (!console.in_is_terminal()) return RunScript(session, defaults);
  console.out() << "troupe at " << defaults.manager
                << "; 'help' lists the commands, Tab completes, Ctrl-D leaves" << std::endl;
  ClusterNames names(session);
  LineEditor editor("troupe> ", HistoryFile(), [&](std::string_view line) {
    return Complete(line, [&](Kind kind) { return names(kind); });
  });
  ExitCode code = ExitCode::kOk;
  for (bool leave = false; !leave;) {
    std::string line;
    const auto outcome = editor.Read(line);
    console.ClearInterrupt();
    if (outcome == LineEditor::Outcome::kEnd) {
      console.out() << std::endl;
      break;
    }
    if (outcome == LineEditor::Outcome::kDropped) continue;
    code = RunLine(session, line, defaults, leave);
    console.ClearInterrupt();
  }
  return code;
}

}  // namespace troupe::shell
