// UNRELEASED PARTS: parts of objects that others read from this process's arena, by the number with which they release them.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "proto/tensor.pb.h"
#include "transport/tensor_channel.hpp"

namespace troupe::actors {

// Threads: any.
class UnreleasedParts {
 public:
  // `channel` outlives it.
  explicit UnreleasedParts(transport::TensorChannel& channel) : channel_(channel) {}

  // What the channel has put there: the number of its release.
  [[nodiscard]] std::uint64_t Add(proto::TensorRef part) {
    const std::lock_guard lock(mutex_);
    parts_[next_] = std::move(part);
    return next_++;
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

 private:
  transport::TensorChannel& channel_;
  std::mutex mutex_;
  std::map<std::uint64_t, proto::TensorRef> parts_;  // guarded by mutex_
  std::uint64_t next_ = 1;                           // guarded by mutex_
};

}  // namespace troupe::actors
