// FAKE TENSORS: outputs that runs of a fake worker have left for later runs (RunOrder.keep), whatever their size.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/worker.pb.h"
#include "transport/fake_tensor_channel.hpp"

namespace troupe::actors {

class FakeTensors {
 public:
  using ChannelPtr = std::shared_ptr<transport::FakeTensorChannel>;
  // DataLoss: an input of the run is a tensor that is not here, or a slice of the channel's host that was freed. Else those
  // inputs have their bytes in the order.
  absl::Status Resolve(proto::RunOrder& order, const ChannelPtr& channel) const;
  // What the run was to keep stays here, and is in the outcome by its number.
  void Keep(const proto::RunOrder& order, proto::RunOutcome& run);
  // Puts the tensor into `channel`, where others read it. NotFound; FailedPrecondition: there is no channel.
  absl::StatusOr<proto::WorkerOutcome> Export(const proto::KeptTensor& tensor, const ChannelPtr& channel);
  void Drop(const proto::ReleaseOrder& release);
  // Its bytes; "": it is not here.
  [[nodiscard]] std::string Read(const proto::KeptTensor& tensor) const {
    const auto found = tensors_.find(tensor.number());
    return found == tensors_.end() ? "" : found->second.bytes.substr(tensor.offset(), tensor.length());
  }
  // The daemon is gone.
  void Clear() { tensors_.clear(); }
  [[nodiscard]] std::size_t size() const { return tensors_.size(); }

 private:
  struct Tensor {
    std::string bytes;
    std::vector<std::shared_ptr<void>> places;  // each frees its slice at its end
  };
  std::map<std::uint64_t, Tensor> tensors_;
};

}  // namespace troupe::actors
