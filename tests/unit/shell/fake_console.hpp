// A console without a person: it keeps what is written, its input was set before, and time passes only in
// waits.
#pragma once

#include <deque>
#include <sstream>
#include <string>

#include "shell/console.hpp"

namespace troupe::shell {

class FakeConsole final : public Console {
 public:
  std::ostream& out() override { return out_; }
  std::ostream& err() override { return err_; }
  [[nodiscard]] bool in_is_terminal() const override { return terminal; }
  [[nodiscard]] bool out_is_terminal() const override { return terminal; }
  [[nodiscard]] bool err_is_terminal() const override { return terminal; }
  [[nodiscard]] int columns() const override { return 120; }
  [[nodiscard]] int rows() const override { return 50; }
  [[nodiscard]] Time Now() const override { return now; }
  [[nodiscard]] bool interrupted() const override { return interrupt; }
  void ClearInterrupt() override { interrupt = false; }
  bool ReadLine(std::string& line) override;
  Wake Sleep(Duration duration) override;
  void BeginScreen() override { ++screens; }
  void EndScreen() override { --screens; }

  // The text that was written since the last call.
  std::string TakeOut();
  std::string TakeErr();

  bool terminal = false;
  bool interrupt = false;
  Time now{};
  std::deque<std::string> input;
  std::deque<Wake> wakes;  // how the next sleeps end; later ones end with kInterrupt
  int screens = 0;

 private:
  std::ostringstream out_;
  std::ostringstream err_;
};

}  // namespace troupe::shell
