// PROGRAM: `troupe` without its main, so that tests run all of it.
#pragma once

#include <string>
#include <vector>

#include "shell/exit_code.hpp"
#include "shell/session.hpp"

namespace troupe::shell {

// `words` are the program's arguments without its name; `manager` is TROUPE_MANAGER, `tls_dir`
// TROUPE_TLS_DIR, or empty.
ExitCode RunProgram(Session& session, const std::vector<std::string>& words, const std::string& manager,
                    const std::string& tls_dir = "");

}  // namespace troupe::shell
