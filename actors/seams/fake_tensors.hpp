// FAKE TENSORS: outputs that runs of a fake worker have left for later runs (RunOrder.keep), whatever their size.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/worker.pb.h"
#include "transport/fake_tensor_channel.hpp"

namespace troupe::actors {

class FakeTensors {
 public:
  using ChannelPtr = std::shared_ptr<transport::FakeTensorChannel>;
  // Puts the bytes of kept tensors and of arena slices into the order's inputs and those of its members, and the parts of an
  // input together, from the last to the first if it is to make that mistake. DataLoss: such a tensor is not kept here, or
  // such a slice was freed.
  absl::Status Resolve(proto::RunOrder& order, const ChannelPtr& channel, bool swaps_parts = false) const;
  // Keeps the outputs that the order names, and puts their numbers into the outcome.
  void Keep(const proto::RunOrder& order, proto::RunOutcome& run);
  // Puts the tensor into `channel`, where others read it. NotFound; FailedPrecondition: there is no channel.
  absl::StatusOr<proto::WorkerOutcome> Export(const proto::KeptTensor& tensor, const ChannelPtr& channel);
  void Drop(const proto::ReleaseOrder& release);
  // Holds the tensor's bytes under `pin` for the worker of another GPU, also after the tensor was dropped. NotFound: no such tensor.
  absl::Status Pin(std::uint64_t pin, const proto::KeptTensor& tensor);
  void Unpin(std::uint64_t pin) { pinned_.erase(pin); }
  // The bytes under `pin`; nothing when there is no such pin, or when it was given back.
  [[nodiscard]] std::optional<std::string> Pinned(std::uint64_t pin) const {
    const auto found = pinned_.find(pin);
    return found == pinned_.end() ? std::nullopt : std::optional(found->second);
  }
  // Keeps bytes that came from another GPU.
  void Take(std::uint64_t number, std::string bytes) { tensors_[number] = {std::move(bytes), {}}; }
  // The tensor's bytes; "" when it is not kept here.
  [[nodiscard]] std::string Read(const proto::KeptTensor& tensor) const {
    const auto found = tensors_.find(tensor.number());
    return found == tensors_.end() ? "" : found->second.bytes.substr(tensor.offset(), tensor.length());
  }
  // Forgets all tensors and pins, as a worker does when its daemon is gone.
  void Clear() {
    tensors_.clear();
    pinned_.clear();
  }
  // How many tensors and pins there are.
  [[nodiscard]] std::size_t size() const { return tensors_.size() + pinned_.size(); }

 private:
  struct Tensor {
    std::string bytes;
    std::vector<std::shared_ptr<void>> places;  // each frees its slice at its end
  };
  absl::Status ResolveInput(proto::Tensor& input, const ChannelPtr& channel) const;
  [[nodiscard]] const Tensor* Find(const proto::KeptTensor& part) const;

  std::map<std::uint64_t, Tensor> tensors_;
  std::map<std::uint64_t, std::string> pinned_;  // by pin
};

}  // namespace troupe::actors
