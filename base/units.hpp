// Types that carry their unit. A bare `double ms` or `size_t n` never crosses a function boundary in Troupe.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <string>

namespace troupe {

// A span of time, in nanoseconds.
using Duration = std::chrono::nanoseconds;

// A point of time on the clock that the caller owns (steady in a daemon, virtual in the simulator). Rooms
// that decide (cluster/, node/) only ever receive it as an argument.
struct Clock {
  using duration = Duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<Clock>;
  static constexpr bool is_steady = true;
};
using Time = Clock::time_point;

[[nodiscard]] constexpr double ToSeconds(Duration d) {
  return std::chrono::duration<double>(d).count();
}
[[nodiscard]] constexpr double ToMillis(Duration d) {
  return ToSeconds(d) * 1e3;
}
// Rounds towards zero; `seconds` beyond the range of Duration (292 years) saturates.
[[nodiscard]] Duration FromSeconds(double seconds);

// A number of bytes. Never negative; subtraction below zero is a bug and ends the process.
class Bytes {
 public:
  constexpr Bytes() = default;
  constexpr explicit Bytes(std::uint64_t count) : count_(count) {}
  [[nodiscard]] constexpr std::uint64_t count() const { return count_; }
  constexpr auto operator<=>(const Bytes&) const = default;
  constexpr Bytes& operator+=(Bytes other) { return count_ += other.count_, *this; }
  Bytes& operator-=(Bytes other);
  friend constexpr Bytes operator+(Bytes a, Bytes b) { return Bytes(a.count_ + b.count_); }
  friend Bytes operator-(Bytes a, Bytes b) { return a -= b; }
  friend constexpr Bytes operator*(Bytes a, std::uint64_t k) { return Bytes(a.count_ * k); }

 private:
  std::uint64_t count_ = 0;
};

[[nodiscard]] constexpr Bytes KiB(std::uint64_t n) {
  return Bytes(n << 10);
}
[[nodiscard]] constexpr Bytes MiB(std::uint64_t n) {
  return Bytes(n << 20);
}
[[nodiscard]] constexpr Bytes GiB(std::uint64_t n) {
  return Bytes(n << 30);
}
// The smallest multiple of `alignment` (a power of two) that is at least `b`.
[[nodiscard]] constexpr Bytes AlignUp(Bytes b, Bytes alignment) {
  return Bytes((b.count() + alignment.count() - 1) & ~(alignment.count() - 1));
}

// A bandwidth. Zero means unlimited.
struct BytesPerSecond {
  double value = 0;
  constexpr auto operator<=>(const BytesPerSecond&) const = default;
};

// How long `b` bytes take at `rate`; zero for an unlimited rate.
[[nodiscard]] Duration TransferTime(Bytes b, BytesPerSecond rate);

// "1.5 GiB", "320 B": three significant digits, for people.
[[nodiscard]] std::string FormatBytes(Bytes b);
// "12.3 ms", "4.5 s": three significant digits, for people.
[[nodiscard]] std::string FormatDuration(Duration d);
// Reads "64MiB", "1.5GiB", "2GB", "512" (bytes). False when `text` is not a valid size.
[[nodiscard]] bool ParseBytes(const std::string& text, Bytes& out);
// Reads "50ms", "1.5s", "2m", "250us", "10ns". A bare number has no unit and is refused: false.
[[nodiscard]] bool ParseDuration(const std::string& text, Duration& out);

}  // namespace troupe
