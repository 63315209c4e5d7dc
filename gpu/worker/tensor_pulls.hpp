// TENSOR PULLS: tensors that workers of other GPUs keep come to this one's store, over the link between the two (004
// StreamBox, section 6.1).
//
//   asked -> there is room -> the other memory is opened -> copied -> still pinned there: kept here, under a number of its own
//   each of these -(fails)-> the room goes back
//
// The source stays as it is: the same bytes are in two places then. The main loop's thread; copies end on the device's threads,
// which post back.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/swap/device_links.hpp"
#include "gpu/worker/limits.hpp"
#include "gpu/worker/peer_client.hpp"
#include "gpu/worker/reply.hpp"
#include "gpu/worker/task_queue.hpp"
#include "gpu/worker/tensor_store.hpp"
#include "proto/worker.pb.h"

namespace troupe::gpu {

class TensorPulls {
 public:
  using ChannelPtr = std::shared_ptr<transport::LocalChannel>;
  TensorPulls(Device& device, TensorStore& tensors, TaskQueue& queue, DeviceLinks& links,
              const WorkerLimits& limits)
      : tensors_(tensors), queue_(queue), links_(links), limits_(limits), peers_(device) {}
  // What is still on its way calls back.
  ~TensorPulls() { links_.Close(); }

  // Unavailable: the source is gone, or has unpinned it; ResourceExhausted: there is no room for it here; AlreadyExists: the
  // number is taken; InvalidArgument: what the order offers is not `length` bytes. `channel`: the session's, which reaches the
  // source.
  void Pull(const ChannelPtr& channel, const proto::PullOrder& order, Reply reply);
  // The daemon is gone: what still comes is not kept.
  void Abandon() { ++life_; }
  // Since the start.
  [[nodiscard]] Bytes pulled() const { return pulled_; }

 private:
  struct Course {
    std::uint64_t number = 0;
    Bytes length;
    PinnedSource source;
    DeviceRange room;
    Reply reply;
    std::uint64_t life = 0;
  };
  using CoursePtr = std::shared_ptr<Course>;
  void Copy(const CoursePtr& course, const absl::StatusOr<std::shared_ptr<const PeerMemory>>& memory);
  void Ended(const CoursePtr& course, const absl::Status& status);

  TensorStore& tensors_;
  TaskQueue& queue_;
  DeviceLinks& links_;
  const WorkerLimits& limits_;
  std::uint64_t life_ = 0;
  Bytes pulled_;
  PeerClient peers_;  // ends first
};

}  // namespace troupe::gpu
