#include "gpu/worker/tensor_pulls.hpp"

#include <utility>

#include "absl/strings/str_cat.h"

namespace troupe::gpu {

void TensorPulls::Pull(const ChannelPtr& channel, const proto::PullOrder& order, Reply reply) {
  const Bytes length(order.length());
  if (tensors_.Has(order.number())) {
    return reply.Fail(
        absl::AlreadyExistsError(absl::StrCat("this worker keeps a tensor ", order.number(), " already")));
  }
  absl::StatusOr<PinnedSource> source = ReadPinned(order.from_gpu(), order.pinned(), length, limits_);
  if (!source.ok()) return reply.Fail(source.status());
  if (length == Bytes(0))
    return reply.Fail(absl::InvalidArgumentError("a tensor of 0 bytes was to be copied"));
  const auto room = tensors_.Reserve("", length);
  if (!room) {
    return reply.Fail(absl::ResourceExhaustedError(
        absl::StrCat("this device has no room for a tensor of ", length.count(), " bytes")));
  }
  source->channel = channel;
  const auto course = std::make_shared<Course>(
      Course{order.number(), length, *std::move(source), *room, std::move(reply), life_});
  peers_.Open(course->source,
              [this, course](const absl::StatusOr<std::shared_ptr<const PeerMemory>>& memory) {
                queue_.Post([this, course, memory] { Copy(course, memory); });
              });
}

void TensorPulls::Copy(const CoursePtr& course,
                       const absl::StatusOr<std::shared_ptr<const PeerMemory>>& memory) {
  if (!memory.ok()) return Ended(course, memory.status());
  TransferRequest transfer;
  transfer.order = course->reply.sequence();
  transfer.pieces.push_back({.device = course->room.Part(Bytes(0), course->length)});
  transfer.peer = *memory;
  transfer.done = [this, course](const Completion& completion) {
    const auto ended = [this, course](const absl::Status& status) {
      queue_.Post([this, course, status] { Ended(course, status); });
    };
    if (!completion.status.ok()) return ended(completion.status);
    // The bytes count if they were still pinned when all were copied.
    peers_.Confirm(course->source, ended);
  };
  links_.from(course->source.gpu).Put(std::move(transfer));
}

void TensorPulls::Ended(const CoursePtr& course, const absl::Status& status) {
  absl::Status kept = status;
  if (kept.ok() && course->life != life_) kept = absl::UnavailableError("the daemon is gone");
  if (!kept.ok()) {
    tensors_.GiveBack(course->room);
    return course->reply.Fail(kept);
  }
  // Gives the room back when the number is taken.
  kept = tensors_.Keep(course->number, course->room, course->length, course->source.channel);
  if (!kept.ok()) return course->reply.Fail(kept);
  pulled_ += course->length;
  proto::WorkerOutcome outcome;
  outcome.set_bytes(course->length.count());
  course->reply.Done(std::move(outcome));
}

}  // namespace troupe::gpu
