// RUN COPIES: how runs' tensors come to the device and leave it, and weights that come by layer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/device/device.hpp"
#include "gpu/swap/device_links.hpp"
#include "gpu/worker/lanes.hpp"
#include "gpu/worker/limits.hpp"
#include "gpu/worker/run.hpp"
#include "gpu/worker/task_queue.hpp"
#include "gpu/worker/worker_device.hpp"

namespace troupe::gpu {

// The main loop's thread.
class RunCopies {
 public:
  using Inputs = absl::StatusOr<std::vector<transport::TensorData>>;
  // Called on the main loop's thread, once for each call that asks for it.
  struct Calls {
    std::function<void(RunId, Inputs)> fetched;              // by Fetch, before it returns where it can
    std::function<void(RunId, const absl::Status&)> staged;  // by CopyIn
    std::function<void(RunId, const absl::Status&)> left;    // by CopyOut
    std::function<void(RunId, const absl::Status&)> landed;  // by each sending of layers
    std::function<void()> begun;                             // the first part of some run's layers is there
  };
  RunCopies(WorkerDevice& device, TaskQueue& queue, Lanes lanes, const WorkerLimits& limits, Calls calls);

  // Finds the inputs that the run's order names.
  void Fetch(RunId id, const Run& run);
  // Reading from the arenas of this order does not block any more.
  void Remember(const proto::RunOrder& order);
  void ForgetArenas() { known_arenas_.clear(); }
  void CopyIn(RunId id, Run& run);
  // An error: the outputs do not leave, and `left` is not called.
  absl::Status CopyOut(RunId id, Run& run);
  // Begins to send the weights through the run's window.
  void SendLayers(RunId id, Run& run, std::shared_ptr<const WeightWindow> window);
  // The steps before `step` have ended: their places in the window are free.
  void SendLayersOf(Run& run, std::size_t step) { run.layers->Send(step, device_.links.in()); }
  // Waits for what is on its way.
  void Close();

  [[nodiscard]] Bytes bytes_in() const { return bytes_in_; }
  [[nodiscard]] Bytes bytes_out() const { return bytes_out_; }

 private:
  // An arena in which tensors lie; empty: they lie elsewhere.
  struct Lying {
    std::shared_ptr<const void> memory{};
    ArenaPins::Owner owner{};
  };
  // One request's part of an input or output: where it is, and where it goes.
  struct InputBytes {
    DeviceRange to;
    std::span<const std::byte> from;
    Lying arena{};
  };
  struct OutputBytes {
    std::span<std::byte> to;
    DeviceRange from;
  };
  // Of one run on one stream, where they end in order: the first error, and what stays registered until then.
  struct Copies {
    absl::Status status;
    std::vector<ArenaPins::Lease> pinned;
  };
  static std::vector<OutputBytes> OutputsOf(const Run& run);
  // Where the bytes of a request's tensor lie, which no worker keeps, and where in the run's memory they go.
  static InputBytes BytesOf(const Run& run, std::size_t request, int tensor, const DeviceRange& to);
  static Lying ArenaOf(const Run& run, const transport::TensorData& input);
  // To be kept until a copy from or to these bytes has ended.
  [[nodiscard]] ArenaPins::Lease Use(std::span<const std::byte> bytes, const Lying& arena);
  [[nodiscard]] ArenaPins::Lease UseOwn(const Run& run, const OutputBytes& output);
  void CopyBytesIn(RunId id, Run& run, const std::vector<InputBytes>& bytes);
  void SendInputs(RunId id, Run& run, const std::vector<InputBytes>& bytes);
  void SendOutputs(RunId id, Run& run, const std::vector<OutputBytes>& leaving);

  WorkerDevice& device_;
  TaskQueue& queue_;
  Lanes lanes_;
  const WorkerLimits& limits_;
  const Calls calls_;
  // Mapped before: reading from them does not block.
  std::set<std::pair<std::string, std::uint64_t>> known_arenas_;
  Bytes bytes_in_;
  Bytes bytes_out_;
  std::unique_ptr<Stream> in_;
  std::unique_ptr<Stream> out_;
  TaskThread fetcher_;  // ends first: meets arenas for the first time
};

}  // namespace troupe::gpu
