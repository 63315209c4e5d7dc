#include "shell/progress.hpp"

#include "absl/strings/str_format.h"
#include "shell/text/cat.hpp"
#include "shell/text/text.hpp"

namespace troupe::shell {

Progress::Progress(Console& console, std::string doing, std::uint64_t total)
    : console_(console), doing_(std::move(doing)), total_(total), begin_(console.Now()) {}

void Progress::Update(std::uint64_t done) {
  const Duration spent = console_.Now() - begin_;
  if (!console_.err_is_terminal() || spent < kQuiet) return;
  static constexpr std::string_view kFrames = "|/-\\";
  std::string line;
  if (total_ > 0) {
    const double share = static_cast<double>(done) / static_cast<double>(total_);
    line =
        Cat(doing_, " ", Bar(share, 30), " ", FormatBytes(Bytes(done)), " of ", FormatBytes(Bytes(total_)));
  } else {
    line = absl::StrFormat("%c %s (%.0f s)", kFrames[frame_++ % kFrames.size()], doing_, ToSeconds(spent));
  }
  console_.err() << "\r\x1b[K" << Shorten(line, static_cast<std::size_t>(console_.columns() - 1))
                 << std::flush;
  drawn_ = true;
}

void Progress::Finish() {
  if (drawn_) console_.err() << "\r\x1b[K" << std::flush;
  drawn_ = false;
}

}  // namespace troupe::shell
