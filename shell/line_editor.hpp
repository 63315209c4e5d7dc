// LINE EDITOR: a line from a person at a terminal, by libedit: history in a file, Tab, Ctrl-C drops the line,
// Ctrl-D on an empty one ends. One at a time, on one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "shell/completion.hpp"

namespace troupe::shell {

class LineEditor {
 public:
  enum class Outcome { kLine, kDropped, kEnd };
  using Completer = std::function<Completion(std::string_view line)>;

  // `history_file` may be empty: no history is kept. A file that cannot be written is not an error.
  LineEditor(std::string prompt, std::string history_file, Completer complete);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // Adds what is not blank to the history.
  Outcome Read(std::string& line);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace troupe::shell
