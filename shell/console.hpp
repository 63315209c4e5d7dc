// CONSOLE: the person (or script) before the program: where it writes, what it reads, when it is interrupted.
// The terminal is the production form; tests have a fake. One thread.
#pragma once

#include <memory>
#include <ostream>
#include <string>

#include "base/units.hpp"

namespace troupe::shell {

class Console {
 public:
  enum class Wake { kTimeout, kQuit, kInterrupt };

  virtual ~Console() = default;
  virtual std::ostream& out() = 0;
  virtual std::ostream& err() = 0;
  [[nodiscard]] virtual bool in_is_terminal() const = 0;
  [[nodiscard]] virtual bool out_is_terminal() const = 0;
  [[nodiscard]] virtual bool err_is_terminal() const = 0;
  [[nodiscard]] virtual int columns() const = 0;
  [[nodiscard]] virtual int rows() const = 0;
  [[nodiscard]] virtual Time Now() const = 0;

  // Ctrl-C since the last call of ClearInterrupt.
  [[nodiscard]] virtual bool interrupted() const = 0;
  virtual void ClearInterrupt() = 0;
  // One line of input; false at its end or when interrupted.
  virtual bool ReadLine(std::string& line) = 0;
  // Waits; a 'q' wakes it only between BeginScreen and EndScreen.
  virtual Wake Sleep(Duration duration) = 0;
  // A full screen to draw on: keys arrive one by one and are not shown. What stood there before comes back at
  // the end.
  virtual void BeginScreen() = 0;
  virtual void EndScreen() = 0;
};

// Standard input, output and error. While it exists, it alone handles SIGINT: the first signal is noted, and
// a second that comes before the first was handled ends the process.
[[nodiscard]] std::unique_ptr<Console> MakeTerminalConsole();

}  // namespace troupe::shell
