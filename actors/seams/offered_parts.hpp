// OFFERED PARTS: parts of objects that others read from this process, each by the number with which they release it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/status.hpp"
#include "proto/cluster.pb.h"
#include "transport/tensor_channel.hpp"

namespace troupe::actors {

// Threads: any.
class OfferedParts {
 public:
  // `channel` outlives it.
  explicit OfferedParts(transport::TensorChannel& channel) : channel_(channel) {}

  // Bytes of the object `digest`, which has `total` bytes, as something that can be sent.
  [[nodiscard]] absl::StatusOr<proto::FetchReply> Offer(std::span<const std::byte> bytes, std::uint64_t total,
                                                        const std::string& digest) {
    proto::FetchReply reply;
    reply.set_total(total);
    TROUPE_ASSIGN_OR_RETURN(*reply.mutable_data(), channel_.Put(bytes, digest));
    if (reply.data().has_arena()) reply.set_release(Add(reply.data()));
    bytes_ += bytes.size();
    return reply;
  }
  // Once; what is released again, or was never there, is none.
  void Release(std::uint64_t number) {
    proto::TensorRef part;
    {
      const std::lock_guard lock(mutex_);
      auto node = parts_.extract(number);
      if (node.empty()) return;
      part = std::move(node.mapped());
    }
    // It was put by this channel and is released once: the only error would be a bug here.
    static_cast<void>(channel_.Release(part));
  }
  // Bytes that were offered since the start.
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  [[nodiscard]] std::uint64_t Add(proto::TensorRef part) {
    const std::lock_guard lock(mutex_);
    parts_[next_] = std::move(part);
    return next_++;
  }

  transport::TensorChannel& channel_;
  std::atomic<std::uint64_t> bytes_{0};
  std::mutex mutex_;
  std::map<std::uint64_t, proto::TensorRef> parts_;  // in the arena, by number; guarded by mutex_
  std::uint64_t next_ = 1;                           // guarded by mutex_
};

}  // namespace troupe::actors
