// The one answer that an order gets.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "base/units.hpp"
#include "proto/worker.pb.h"

namespace troupe::gpu {

// Remembers the session and the order to answer. Moved, never copied; answering twice is a bug. Dropped
// without an answer only when the daemon is gone. The main loop's thread.
class Reply {
 public:
  using Send = std::function<void(proto::WorkerOutcome)>;
  Reply(std::uint64_t sequence, Time begin, Send send)
      : sequence_(sequence), begin_(begin), send_(std::move(send)) {}
  Reply(Reply&&) noexcept = default;
  Reply& operator=(Reply&&) noexcept = default;

  // Success, with what the handler has filled in; the sequence and the times are set here.
  void Done(proto::WorkerOutcome outcome = {});
  void Fail(const absl::Status& status, proto::WorkerOutcome outcome = {});
  [[nodiscard]] std::uint64_t sequence() const { return sequence_; }

 private:
  std::uint64_t sequence_;
  Time begin_;
  Send send_;
};

}  // namespace troupe::gpu
