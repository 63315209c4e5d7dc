// FAILED KEYS: how often each client address has shown a key that no record has. After some failures within a
// minute the address is told to wait (429), and its connection is closed. A key that is known is served all
// the same: its 256 bits cannot be guessed, and a client with an old key must not lock out others behind the
// same address.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

namespace troupe::gateway {

// Thread-safe. Has no clock of its own.
class FailedKeys {
 public:
  using SteadyTime = std::chrono::steady_clock::time_point;
  static constexpr int kMostFailures = 20;  // within one window
  static constexpr std::chrono::seconds kWindow{60};
  static constexpr std::size_t kMostAddresses = 4096;

  // Counts one failure of `address`. Zero, or how long the address has to wait.
  [[nodiscard]] std::chrono::seconds Count(const std::string& address, SteadyTime now);
  [[nodiscard]] std::size_t addresses() const;

 private:
  struct Window {
    SteadyTime begin;
    int failures = 0;
  };
  // Under the lock: windows that are over go, and the oldest ones beyond `most`.
  void MakeRoom(SteadyTime now, std::size_t most);

  mutable std::mutex mutex_;
  // mutex_ guards these.
  std::unordered_map<std::string, Window> windows_;
  std::deque<std::pair<SteadyTime, std::string>>
      begun_;  // windows in the order of their begin, so that none is searched for
};

}  // namespace troupe::gateway
