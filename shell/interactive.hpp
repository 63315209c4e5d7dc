// INTERACTIVE SHELL: one session, line by line.
#pragma once

#include "shell/command_line.hpp"
#include "shell/exit_code.hpp"
#include "shell/session.hpp"

namespace troupe::shell {

// At a terminal: until Ctrl-D or `exit`; the code is that of the last command. From a pipe or file: until the
// end, or the first line that fails, whose code is given back.
ExitCode RunShell(Session& session, const GlobalOptions& defaults);

// One line. `leave` is set by `exit` and `quit`. A blank line is kOk.
ExitCode RunLine(Session& session, const std::string& line, const GlobalOptions& defaults, bool& leave);

}  // namespace troupe::shell
