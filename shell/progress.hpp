// PROGRESS: one line on the error stream for what takes more than a second, when a person looks on; gone when
// it is done.
#pragma once

#include <cstdint>
#include <string>

#include "shell/console.hpp"

namespace troupe::shell {

class Progress {
 public:
  // With a `total` (bytes) a bar is drawn, else how long it has taken.
  Progress(Console& console, std::string doing, std::uint64_t total);
  ~Progress() { Finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  // What is being done from now on, instead of `doing`.
  void Say(std::string doing) { doing_ = std::move(doing); }
  void Update(std::uint64_t done);
  void Finish();

  static constexpr Duration kQuiet = std::chrono::seconds(1);

 private:
  Console& console_;
  std::string doing_;
  const std::uint64_t total_;
  const Time begin_;
  std::size_t frame_ = 0;
  bool drawn_ = false;
};

}  // namespace troupe::shell
