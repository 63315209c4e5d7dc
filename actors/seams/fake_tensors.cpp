#include "actors/seams/fake_tensors.hpp"

#include <span>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"

namespace troupe::actors {

const FakeTensors::Tensor* FakeTensors::Find(const proto::KeptTensor& part) const {
  const auto found = tensors_.find(part.number());
  const bool whole = found != tensors_.end() && part.offset() + part.length() <= found->second.bytes.size();
  return whole ? &found->second : nullptr;
}

absl::Status FakeTensors::Pin(std::uint64_t pin, const proto::KeptTensor& tensor) {
  const auto* found = Find(tensor);
  if (found == nullptr) return absl::NotFoundError(absl::StrCat("no tensor ", tensor.number()));
  pinned_[pin] = found->bytes.substr(tensor.offset(), tensor.length());
  return absl::OkStatus();
}

absl::Status FakeTensors::ResolveInput(proto::Tensor& input, const ChannelPtr& channel) const {
  if (input.data().has_arena() && channel != nullptr && channel->Near(input.data())) {
    const auto data = channel->Fetch(input.data());
    if (!data.ok()) return absl::DataLossError(data.status().message());
    input.mutable_data()->set_inlined(data->bytes().data(), data->bytes().size());
  }
  if (!input.data().has_kept()) return absl::OkStatus();
  const auto kept = input.data().kept();
  const auto* found = Find(kept);
  if (found == nullptr)
    return absl::DataLossError(absl::StrCat("input ", input.spec().name(), ": no tensor ", kept.number()));
  input.mutable_data()->set_inlined(found->bytes.substr(kept.offset(), kept.length()));
  return absl::OkStatus();
}

namespace {

// Inputs that came in parts become one each.
void JoinParts(google::protobuf::RepeatedPtrField<proto::Tensor>& inputs, bool swapped) {
  google::protobuf::RepeatedPtrField<proto::Tensor> whole;
  for (auto& input : inputs) {
    if (!input.continues()) {
      *whole.Add() = std::move(input);
      continue;
    }
    auto& before = *whole.rbegin();
    before.mutable_spec()->set_shape(0, before.spec().shape(0) + input.spec().shape(0));
    auto& bytes = *before.mutable_data()->mutable_inlined();
    bytes = swapped ? input.data().inlined() + bytes : bytes + input.data().inlined();
  }
  inputs = std::move(whole);
}

}  // namespace

absl::Status FakeTensors::Resolve(proto::RunOrder& order, const ChannelPtr& channel, bool swaps_parts) const {
  for (auto& input : *order.mutable_inputs()) TROUPE_RETURN_IF_ERROR(ResolveInput(input, channel));
  JoinParts(*order.mutable_inputs(), swaps_parts);
  for (auto& member : *order.mutable_members())
    for (auto& input : *member.mutable_inputs()) TROUPE_RETURN_IF_ERROR(ResolveInput(input, channel));
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
  if (Find(tensor) == nullptr) return absl::NotFoundError(absl::StrCat("no tensor ", tensor.number()));
  auto& found = tensors_.at(tensor.number());
  const auto part = std::string_view(found.bytes).substr(tensor.offset(), tensor.length());
  TROUPE_ASSIGN_OR_RETURN(const auto ref, channel->PutSlice(std::as_bytes(std::span(part))));
  proto::WorkerOutcome outcome;
  *outcome.mutable_exported()->mutable_place() = ref.arena();
  found.places.emplace_back(channel.get(), [channel, ref](void*) { channel->Release(ref).IgnoreError(); });
  return outcome;
}

void FakeTensors::Drop(const proto::ReleaseOrder& release) {
  for (const auto number : release.kept()) tensors_.erase(number);
}

}  // namespace troupe::actors
