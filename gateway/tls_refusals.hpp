// TLS REFUSALS: connections to an HTTPS port that were closed before their handshake had ended, counted by
// reason, with a line for the log now and then: a scanner of ports does not fill a disk.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string_view>

namespace troupe::gateway {

enum class TlsRefusal {
  kPlainHttp,  // it did not begin with TLS
  kSlow,       // the handshake took too long
  kTooMany,    // too many handshakes were under way
  kFailed,     // any other end: no common version, a client that does not trust the certificate
};
inline constexpr std::size_t kTlsRefusals = 4;
// "plain_http", "slow", "too_many", "failed": the label of the metric.
[[nodiscard]] std::string_view TlsRefusalName(TlsRefusal reason);

// Thread-safe.
class TlsRefusals {
 public:
  using SteadyTime = std::chrono::steady_clock::time_point;
  using Counts = std::array<std::uint64_t, kTlsRefusals>;

  // At most one line each second; it says how many refusals had none since the line before.
  void Count(TlsRefusal reason, std::string_view client, std::string_view why, SteadyTime now);
  [[nodiscard]] Counts counts() const;

 private:
  std::array<std::atomic<std::uint64_t>, kTlsRefusals> counts_{};
  std::mutex mutex_;  // guards what follows
  SteadyTime logged_ = SteadyTime::min();
  std::uint64_t unlogged_ = 0;
};

}  // namespace troupe::gateway
