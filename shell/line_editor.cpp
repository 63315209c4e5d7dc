#include "shell/line_editor.hpp"

#include <histedit.h>

#include <clocale>
#include <csignal>
#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "shell/text/text.hpp"
#include "shell/words.hpp"

namespace troupe::shell {

struct LineEditor::State {
  std::string prompt;
  std::string history_file;
  Completer complete;
  EditLine* editor = nullptr;
  History* history = nullptr;
  bool dropped = false;

  static State& Of(EditLine* editor) {
    void* state = nullptr;
    el_get(editor, EL_CLIENTDATA, &state);
    return *static_cast<State*>(state);
  }
  static char* Prompt(EditLine* editor) { return Of(editor).prompt.data(); }

  static unsigned char OnTab(EditLine* editor, int) { return Of(editor).Tab(); }
  static unsigned char OnInterrupt(EditLine* editor, int) {
    auto& state = Of(editor);
    state.dropped = true;
    const LineInfo* line = el_line(editor);
    el_cursor(editor, static_cast<int>(
                          Width({line->cursor, static_cast<std::size_t>(line->lastchar - line->cursor)})));
    el_insertstr(editor, "^C");
    // Libedit's own end of a line: it alone knows on which row of the terminal it is.
    el_push(editor, "\n");
    return CC_REFRESH;
  }

  static unsigned char OnSuspend(EditLine* editor, int) {
    el_set(editor, EL_PREP_TERM, 0);
    raise(SIGTSTP);
    el_set(editor, EL_PREP_TERM, 1);
    return CC_REDISPLAY;
  }

  unsigned char Tab() {
    const LineInfo* info = el_line(editor);
    const std::string line(info->buffer, info->cursor);
    const auto completion = complete(line);
    if (completion.candidates.empty()) return CC_REFRESH;
    const auto prefix = completion.CommonPrefix();
    const bool only = completion.candidates.size() == 1;
    std::string word = QuoteWord(prefix, completion.quote);
    // An open word keeps its quote open, so that typing goes on inside.
    const bool whole = only && !absl::EndsWith(prefix, "/");
    if (whole) {
      word += ' ';
    } else if (completion.quote != 0) {
      word.pop_back();
    } else if (prefix.empty()) {
      word.clear();
    }
    const auto typed = std::string_view(line).substr(completion.begin);
    if (typed == word) return List(completion.candidates);
    el_deletestr(editor, static_cast<int>(Width(typed)));
    el_insertstr(editor, word.c_str());
    return CC_REFRESH;
  }

  static constexpr std::size_t kMostListed = 200;

  unsigned char List(const std::vector<std::string>& candidates) {
    std::size_t widest = 0;
    for (const auto& one : candidates) widest = std::max(widest, Width(Printable(one)));
    const std::size_t per_line = std::max<std::size_t>(1, 100 / (widest + 2));
    std::fputc('\n', stdout);
    for (std::size_t i = 0; i < std::min(candidates.size(), kMostListed); ++i) {
      const auto text = Printable(candidates[i]);
      const bool last = i + 1 == std::min(candidates.size(), kMostListed);
      std::fputs(text.c_str(), stdout);
      if (last || (i + 1) % per_line == 0) {
        std::fputc('\n', stdout);
      } else {
        std::fputs(std::string(widest + 2 - Width(text), ' ').c_str(), stdout);
      }
    }
    if (candidates.size() > kMostListed)
      std::fprintf(stdout, "... %zu more\n", candidates.size() - kMostListed);
    std::fflush(stdout);
    return CC_REDISPLAY;
  }
};

LineEditor::LineEditor(std::string prompt, std::string history_file, Completer complete)
    : state_(std::make_unique<State>()) {
  std::setlocale(LC_CTYPE, "");
  state_->prompt = std::move(prompt);
  state_->history_file = std::move(history_file);
  state_->complete = std::move(complete);
  state_->history = history_init();
  HistEvent event = {};
  history(state_->history, &event, H_SETSIZE, 1000);
  history(state_->history, &event, H_SETUNIQUE, 1);
  if (!state_->history_file.empty()) history(state_->history, &event, H_LOAD, state_->history_file.c_str());

  EditLine* editor = state_->editor = el_init("troupe", stdin, stdout, stderr);
  el_set(editor, EL_CLIENTDATA, state_.get());
  el_set(editor, EL_PROMPT, State::Prompt);
  el_set(editor, EL_EDITOR, "emacs");
  el_set(editor, EL_SIGNAL, 1);
  el_set(editor, EL_HIST, history, state_->history);
  el_set(editor, EL_ADDFN, "troupe-complete", "complete the word", State::OnTab);
  el_set(editor, EL_ADDFN, "troupe-drop", "drop the line", State::OnInterrupt);
  el_set(editor, EL_ADDFN, "troupe-suspend", "stop until the shell is continued", State::OnSuspend);
  el_source(editor, nullptr);
  el_set(editor, EL_BIND, "^I", "troupe-complete", nullptr);
  el_set(editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  // While a line is edited, Ctrl-C and Ctrl-Z are keys like others: libedit would send the signals on to the
  // whole process group, and end the line.
  el_set(editor, EL_SETTY, "-d", "-isig", nullptr);
  el_set(editor, EL_BIND, "^C", "troupe-drop", nullptr);
  el_set(editor, EL_BIND, "^Z", "troupe-suspend", nullptr);
}

LineEditor::~LineEditor() {
  el_end(state_->editor);
  history_end(state_->history);
}

LineEditor::Outcome LineEditor::Read(std::string& line) {
  state_->dropped = false;
  int length = 0;
  // Before the prompt is written: libedit does it only after, and a key that comes between the two is not a
  // key yet (a Ctrl-D is lost).
  el_set(state_->editor, EL_PREP_TERM, 1);
  const char* text = el_gets(state_->editor, &length);
  if (state_->dropped) return Outcome::kDropped;
  if (text == nullptr || length <= 0) return Outcome::kEnd;
  line.assign(text, static_cast<std::size_t>(length));
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
  if (!absl::StripAsciiWhitespace(line).empty()) {
    HistEvent event = {};
    history(state_->history, &event, H_ENTER, line.c_str());
    if (!state_->history_file.empty()) history(state_->history, &event, H_SAVE, state_->history_file.c_str());
  }
  return Outcome::kLine;
}

}  // namespace troupe::shell
