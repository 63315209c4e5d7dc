#include <cstdlib>
#include <iostream>

#include "shell/program.hpp"

int main(int argc, char** argv) {
  using namespace troupe;
  const auto console = shell::MakeTerminalConsole();
  shell::Session session(*console, actors::AdminClient::Create);
  const char* manager = std::getenv("TROUPE_MANAGER");
  const auto code = shell::RunProgram(session, std::vector<std::string>(argv + 1, argv + argc),
                                      manager == nullptr ? "" : manager);
  std::cout << std::flush;
  // A call that was left behind still uses what the end of main would destroy.
  if (session.abandoned()) std::_Exit(static_cast<int>(code));
  return static_cast<int>(code);
}
