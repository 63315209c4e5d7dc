#include "actors/seams/fake_tensors.hpp"

#include <span>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"

namespace troupe::actors {

absl::Status FakeTensors::Resolve(proto::RunOrder& order, const ChannelPtr& channel) const {
  for (auto& input : *order.mutable_inputs()) {
    if (input.data().has_arena() && channel != nullptr && channel->Near(input.data())) {
      const auto data = channel->Fetch(input.data());
      if (!data.ok()) return absl::DataLossError(data.status().message());
      input.mutable_data()->set_inlined(data->bytes().data(), data->bytes().size());
    }
    if (!input.data().has_kept()) continue;
    const auto kept = input.data().kept();
    const auto found = tensors_.find(kept.number());
    if (found == tensors_.end() || kept.offset() + kept.length() > found->second.bytes.size())
      return absl::DataLossError(absl::StrCat("input ", input.spec().name(), ": no tensor ", kept.number()));
    input.mutable_data()->set_inlined(found->second.bytes.substr(kept.offset(), kept.length()));
  }
  return absl::OkStatus();
}

void FakeTensors::Keep(const proto::RunOrder& order, proto::RunOutcome& run) {
  for (const auto& keep : order.keep()) {
    for (auto& output : *run.mutable_outputs()) {
      if (output.spec().name() != keep.output() || !output.data().has_inlined()) continue;
      const auto bytes = output.data().inlined();
      output.mutable_data()->mutable_kept()->set_number(keep.number());
      output.mutable_data()->mutable_kept()->set_length(bytes.size());
      tensors_[keep.number()] = {.bytes = bytes, .places = {}};
    }
  }
}

absl::StatusOr<proto::WorkerOutcome> FakeTensors::Export(const proto::KeptTensor& tensor,
                                                         const ChannelPtr& channel) {
  if (channel == nullptr) return absl::FailedPreconditionError("this worker has no arena");
  const auto found = tensors_.find(tensor.number());
  if (found == tensors_.end() || tensor.offset() + tensor.length() > found->second.bytes.size())
    return absl::NotFoundError(absl::StrCat("no tensor ", tensor.number()));
  const auto part = std::string_view(found->second.bytes).substr(tensor.offset(), tensor.length());
  TROUPE_ASSIGN_OR_RETURN(const auto ref, channel->PutSlice(std::as_bytes(std::span(part))));
  proto::WorkerOutcome outcome;
  *outcome.mutable_exported()->mutable_place() = ref.arena();
  found->second.places.emplace_back(channel.get(),
                                    [channel, ref](void*) { channel->Release(ref).IgnoreError(); });
  return outcome;
}

void FakeTensors::Drop(const proto::ReleaseOrder& release) {
  for (const auto number : release.kept()) tensors_.erase(number);
}

}  // namespace troupe::actors
