#include "base/units.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/check.hpp"

namespace troupe {

namespace {

struct Unit {
  const char* name;
  double factor;
};

bool ParseWithUnit(const std::string& text, const Unit* begin, const Unit* end, double& out) {
  double number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !(number >= 0) || !std::isfinite(number)) return false;
  std::string suffix(rest, text.data() + text.size());
  while (!suffix.empty() && suffix.front() == ' ') suffix.erase(0, 1);
  for (const Unit* unit = begin; unit != end; ++unit) {
    if (suffix == unit->name) {
      out = number * unit->factor;
      return out < 9e18;
    }
  }
  return false;
}

}  // namespace

Duration FromSeconds(double seconds) {
  const double nanos = seconds * 1e9;
  if (nanos >= static_cast<double>(std::numeric_limits<Duration::rep>::max())) return Duration::max();
  if (nanos <= static_cast<double>(std::numeric_limits<Duration::rep>::min())) return Duration::min();
  return Duration(static_cast<Duration::rep>(nanos));
}

Bytes& Bytes::operator-=(Bytes other) {
  TROUPE_CHECK(other.count_ <= count_, "bytes would become negative");
  count_ -= other.count_;
  return *this;
}

Duration TransferTime(Bytes b, BytesPerSecond rate) {
  if (rate.value <= 0) return Duration::zero();
  return FromSeconds(static_cast<double>(b.count()) / rate.value);
}

std::string FormatBytes(Bytes b) {
  static constexpr std::array kNames = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(b.count());
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kNames.size()) value /= 1024, ++unit;
  return absl::StrFormat("%.4g %s", value, kNames[unit]);
}

std::string FormatDuration(Duration d) {
  const double nanos = static_cast<double>(d.count());
  const double size = std::abs(nanos);
  if (size < 1e3) return absl::StrFormat("%d ns", d.count());
  if (size < 1e6) return absl::StrFormat("%.3g us", nanos / 1e3);
  if (size < 1e9) return absl::StrFormat("%.3g ms", nanos / 1e6);
  return absl::StrFormat("%.4g s", nanos / 1e9);
}

bool ParseBytes(const std::string& text, Bytes& out) {
  static constexpr std::array<Unit, 10> kUnits = {{{"", 1},
                                                   {"B", 1},
                                                   {"KiB", 1024},
                                                   {"MiB", 1048576},
                                                   {"GiB", 1073741824},
                                                   {"TiB", 1099511627776.0},
                                                   {"KB", 1e3},
                                                   {"MB", 1e6},
                                                   {"GB", 1e9},
                                                   {"TB", 1e12}}};
  double value = 0;
  if (!ParseWithUnit(text, kUnits.data(), kUnits.data() + kUnits.size(), value)) return false;
  out = Bytes(static_cast<std::uint64_t>(value));
  return true;
}

bool ParseDuration(const std::string& text, Duration& out) {
  static constexpr std::array<Unit, 6> kUnits = {
      {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}}};
  double value = 0;
  if (!ParseWithUnit(text, kUnits.data(), kUnits.data() + kUnits.size(), value)) return false;
  out = Duration(static_cast<Duration::rep>(value));
  return true;
}

}  // namespace troupe
