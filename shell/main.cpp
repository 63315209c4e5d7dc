#include <cstdlib>
#include <iostream>

#include "shell/program.hpp"

int main(int argc, char** argv) {
  using namespace troupe;
  const auto console = shell::MakeTerminalConsole();
  shell::Session session(*console, actors::AdminClient::Create);
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  const auto code = shell::RunProgram(session, std::vector<std::string>(argv + 1, argv + argc),
                                      variable("TROUPE_MANAGER"), variable("TROUPE_TLS_DIR"));
  std::cout << std::flush;
  // A call that was left behind still uses what the end of main would destroy.
  if (session.abandoned()) std::_Exit(static_cast<int>(code));
  return static_cast<int>(code);
}
