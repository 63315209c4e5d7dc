#include "gpu/worker/residency.hpp"

#include <utility>

#include "absl/strings/str_cat.h"

namespace troupe::gpu {

proto::WorkerOutcome NoFitOutcome(const DeviceMemory& memory) {
  const MemoryUse use = memory.memory();
  proto::WorkerOutcome outcome;
  outcome.mutable_no_fit()->set_free(use.free.count());
  outcome.mutable_no_fit()->set_largest(use.largest.count());
  return outcome;
}

Residency::Residency(DeviceMemory& memory, TaskQueue& queue, Lanes lanes, const WorkerLimits& limits)
    : memory_(memory), queue_(queue), lanes_(lanes), limits_(limits), stream_(memory.device().MakeStream()) {}

Residency::~Residency() = default;

void Residency::Connect(Changed changed, Wanted wanted) {
  changed_ = std::move(changed);
  wanted_ = std::move(wanted);
}

void Residency::SwapIn(const HostModel& host, Reply reply) {
  switch (table_.StateOf(host.digest)) {
    case ModelTable::State::kResident:
    case ModelTable::State::kRunning:
      reply.Done();
      return;
    case ModelTable::State::kLoading:
      waiting_[host.digest].push_back(std::move(reply));
      return;
    case ModelTable::State::kAbsent:
      break;
  }
  if (table_.loading() >= limits_.loading_models) {
    reply.Fail(
        absl::ResourceExhaustedError(absl::StrCat(table_.loading(), " models are being swapped in already")));
    return;
  }
  const absl::StatusOr<DeviceRange> range =
      memory_.Allocate({MemoryUser::Kind::kWeights, host.digest}, Bytes(host.weights.size()));
  if (!range.ok()) {
    reply.Fail(range.status(), NoFitOutcome(memory_));
    return;
  }
  table_.BeginLoading(host.digest, *range);
  lanes_.At(Lane::kCopyIn, reply.sequence());
  waiting_[host.digest].push_back(std::move(reply));
  // The callback holds the host copy: the region stays mapped while the copy reads it.
  stream_->CopyIn(*range, host.weights, [this, host](const Completion& completion) {
    queue_.Post([this, digest = host.digest, status = completion.status] { Copied(digest, status); });
  });
}

void Residency::Copied(const std::string& digest, const absl::Status& status) {
  proto::WorkerOutcome outcome;
  if (status.ok()) {
    table_.Loaded(digest);
    outcome.set_bytes(table_.SizeOf(digest).count());
    ++swaps_;
  } else {
    memory_.Free(table_.LoadFailed(digest));
  }
  std::vector<Reply> replies = std::move(waiting_.extract(digest).mapped());
  for (Reply& reply : replies) {
    status.ok() ? reply.Done(outcome) : reply.Fail(status);
    outcome.set_bytes(0);  // moved once, for the first that asked
  }
  if (changed_) changed_(digest, status);
}

void Residency::Evict(const std::string& digest, Reply reply) {
  if (wanted_ && wanted_(digest)) {
    reply.Fail(
        absl::FailedPreconditionError(absl::StrCat("runs wait for model ", digest, ": evict it afterwards")));
    return;
  }
  const absl::StatusOr<DeviceRange> range = table_.Evict(digest);
  if (!range.ok()) {
    reply.Fail(range.status());
    return;
  }
  memory_.Free(*range);
  reply.Done();
}

}  // namespace troupe::gpu
