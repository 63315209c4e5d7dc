#include "tests/unit/shell/fake_console.hpp"

#include <utility>

namespace troupe::shell {

bool FakeConsole::ReadLine(std::string& line) {
  if (input.empty()) return false;
  line = std::move(input.front());
  input.pop_front();
  return true;
}

Console::Wake FakeConsole::Sleep(Duration duration) {
  if (wakes.empty()) return Wake::kInterrupt;
  const Wake wake = wakes.front();
  wakes.pop_front();
  now += duration;
  return wake;
}

std::string FakeConsole::TakeOut() {
  std::string text = out_.str();
  out_.str("");
  return text;
}

std::string FakeConsole::TakeErr() {
  std::string text = err_.str();
  err_.str("");
  return text;
}

}  // namespace troupe::shell
