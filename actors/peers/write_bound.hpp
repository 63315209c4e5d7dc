// WRITE BOUND: how many bytes may wait until the process at the other end of one connection reads them. CAF
// keeps what a socket does not take in a buffer without a limit, so a process that ends its handshake, asks
// and never reads would make this process grow. A peer that is slow but reads is left alone:
//
//   closed when   more than kMost bytes wait for it, or
//                 bytes waited for all of kPatience, and it took less than kSlowest of them meanwhile, or
//                 the same within kShortPatience, while all connections together have more than kShort
//                 waiting.
//
// Pure: time comes in. The thread of the connection.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "base/units.hpp"

namespace troupe::actors {

// The unwritten bytes of all connections of a process.
using UnwrittenBytes = std::atomic<std::uint64_t>;

class WriteBound {
 public:
  static constexpr std::uint64_t kMost = 128u << 20;   // two of the longest messages
  static constexpr std::uint64_t kShort = 256u << 20;  // of all connections
  static constexpr Duration kPatience = std::chrono::seconds(10);
  static constexpr Duration kShortPatience = std::chrono::seconds(1);
  static constexpr double kSlowest = 64 << 10;  // bytes each second

  explicit WriteBound(std::shared_ptr<UnwrittenBytes> all) : all_(std::move(all)) {}
  WriteBound(const WriteBound&) = delete;
  WriteBound& operator=(const WriteBound&) = delete;
  ~WriteBound() { Update(0, 0); }

  // What CAF holds for this connection: `queued` bytes behind the bytes that it is writing. `swapped`: it was
  // writing none, and writes the queued ones now.
  void Queued(std::uint64_t queued, bool swapped);
  // The socket took `taken` of the bytes that CAF writes, and `left` of them are left.
  void Wrote(std::uint64_t taken, std::uint64_t left);
  // ResourceExhausted when the connection is to be closed, with what the other end failed to read.
  [[nodiscard]] absl::Status Check(Time now);
  [[nodiscard]] std::uint64_t unwritten() const { return writing_ + queued_; }

 private:
  void Update(std::uint64_t writing, std::uint64_t queued);

  const std::shared_ptr<UnwrittenBytes> all_;
  std::uint64_t writing_ = 0;
  std::uint64_t queued_ = 0;
  bool waits_ = false;       // bytes have waited since `since_` without a break
  Time since_ = Time();      // when the window of `taken_` began
  std::uint64_t taken_ = 0;  // by the socket, in that window
};

}  // namespace troupe::actors
