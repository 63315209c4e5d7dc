#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <iostream>

#include "shell/console.hpp"

namespace troupe::shell {

namespace {

volatile std::sig_atomic_t interrupt_noted = 0;

void OnInterrupt(int) {
  if (interrupt_noted != 0) _exit(130);
  interrupt_noted = 1;
}

constexpr std::string_view kAlternateScreen = "\x1b[?1049h\x1b[?25l";
constexpr std::string_view kMainScreen = "\x1b[?25h\x1b[?1049l";

class TerminalConsole final : public Console {
 public:
  TerminalConsole() {
    struct sigaction action = {};
    action.sa_handler = OnInterrupt;  // without SA_RESTART: a read that waits is to end
    sigaction(SIGINT, &action, &before_);
  }
  ~TerminalConsole() override {
    EndScreen();
    sigaction(SIGINT, &before_, nullptr);
  }

  std::ostream& out() override { return std::cout; }
  std::ostream& err() override { return std::cerr; }
  [[nodiscard]] bool in_is_terminal() const override { return isatty(STDIN_FILENO) != 0; }
  [[nodiscard]] bool out_is_terminal() const override { return isatty(STDOUT_FILENO) != 0; }
  [[nodiscard]] bool err_is_terminal() const override { return isatty(STDERR_FILENO) != 0; }
  [[nodiscard]] int columns() const override { return Size().ws_col; }
  [[nodiscard]] int rows() const override { return Size().ws_row; }
  [[nodiscard]] Time Now() const override {
    return Time(std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch()));
  }
  [[nodiscard]] bool interrupted() const override { return interrupt_noted != 0; }
  void ClearInterrupt() override { interrupt_noted = 0; }

  bool ReadLine(std::string& line) override {
    line.clear();
    char c = 0;
    while (!interrupted()) {
      // The signal may meet another thread, so the read itself must not be what waits.
      pollfd input = {STDIN_FILENO, POLLIN, 0};
      if (poll(&input, 1, 100) <= 0) continue;
      const ssize_t got = read(STDIN_FILENO, &c, 1);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return !line.empty();
      if (c == '\n') return true;
      line += c;
    }
    return false;
  }

  Wake Sleep(Duration duration) override {
    const Time end = Now() + duration;
    while (true) {
      if (interrupted()) return Wake::kInterrupt;
      const Duration left = end - Now();
      if (left <= Duration::zero()) return Wake::kTimeout;
      const auto wait = std::min<Duration>(left, std::chrono::milliseconds(100));
      pollfd input = {on_screen_ && in_is_terminal() ? STDIN_FILENO : -1, POLLIN, 0};
      if (poll(&input, 1, static_cast<int>(wait.count() / 1000000) + 1) <= 0 || (input.revents & POLLIN) == 0)
        continue;
      char key = 0;
      if (read(STDIN_FILENO, &key, 1) == 1 && (key == 'q' || key == 'Q')) return Wake::kQuit;
    }
  }

  void BeginScreen() override {
    if (on_screen_) return;
    on_screen_ = true;
    if (in_is_terminal() && tcgetattr(STDIN_FILENO, &line_mode_) == 0) {
      termios keys = line_mode_;
      keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      tcsetattr(STDIN_FILENO, TCSANOW, &keys);
      keys_changed_ = true;
    }
    std::cout << kAlternateScreen << std::flush;
  }
  void EndScreen() override {
    if (!on_screen_) return;
    on_screen_ = false;
    std::cout << kMainScreen << std::flush;
    if (keys_changed_) tcsetattr(STDIN_FILENO, TCSANOW, &line_mode_);
    keys_changed_ = false;
  }

 private:
  static winsize Size() {
    winsize size = {};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) size.ws_col = 100, size.ws_row = 40;
    return size;
  }

  struct sigaction before_ = {};
  termios line_mode_ = {};
  bool keys_changed_ = false;
  bool on_screen_ = false;
};

}  // namespace

std::unique_ptr<Console> MakeTerminalConsole() {
  return std::make_unique<TerminalConsole>();
}

}  // namespace troupe::shell
