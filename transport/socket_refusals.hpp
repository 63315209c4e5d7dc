// SOCKET REFUSALS: counts the connections that a process refused or closed at its sockets, by reason, for its
// metrics. Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace troupe::transport {

enum class SocketRefusal {
  kOtherUser,      // the process at the other end runs as another user
  kCrowdedOut,     // too many connections had not said what they want: the oldest was closed
  kSilent,         // it did not say what it wants in time
  kBrokenMessage,  // it said what makes no sense here
  kNoDescriptors,  // the system had no descriptor left for it
};
inline constexpr std::array<const char*, 5> kSocketRefusalNames = {"other_user", "crowded_out", "silent",
                                                                   "broken_message", "no_descriptors"};

class SocketRefusals {
 public:
  void Count(SocketRefusal reason) { counts_[Index(reason)].fetch_add(1, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t count(SocketRefusal reason) const {
    return counts_[Index(reason)].load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t total() const {
    std::uint64_t sum = 0;
    for (const auto& count : counts_) sum += count.load(std::memory_order_relaxed);
    return sum;
  }

 private:
  static constexpr std::size_t Index(SocketRefusal reason) { return static_cast<std::size_t>(reason); }
  std::array<std::atomic<std::uint64_t>, kSocketRefusalNames.size()> counts_{};
};

}  // namespace troupe::transport
