// DEVICE: what a GPU is to everything above it. The virtual GPU implements it here, CUDA in a plug-in; the
// contract tests (tests/unit/gpu_device) run on both.
//
// Memory is one bounded space that is handed out in ranges. Work is put on streams: the operations of one
// stream happen in order, operations of different streams at the same time as far as the engines allow (one
// copy engine per direction, one for copies from other GPUs, one compute engine that `concurrency` launches
// share). Nothing here blocks its
// caller except Prepare; the end of an operation is told by a callback, and other operations wait for it
// through its event.
//
// Owner: one per worker process, made at the first adoption, destroyed last. All members are thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/share_ladder.hpp"
#include "base/units.hpp"
#include "gpu/device/event.hpp"
#include "gpu/device/signals.hpp"
#include "proto/function.pb.h"
#include "proto/model.pb.h"
#include "proto/worker.pb.h"
#include "transport/memory_file.hpp"

namespace troupe::transport {
class Broadcaster;
class LinkBuckets;
}  // namespace troupe::transport

namespace troupe::gpu {

struct DeviceInfo {
  std::string name;         // "virtual:0", "cuda:1"
  std::string pack_target;  // Model::packed_for of the weights that run best here
  Bytes memory;
  BytesPerSecond link;  // to the host, one direction
  // Launches, of as many streams, that can compute at the same time; on the same SMs each is the slower for
  // the others.
  std::size_t concurrency = 1;
  bool peer_copies = false;  // from other GPUs of its node
  bool registers_pages =
      false;           // copies of memory that was registered are faster, and registering it takes time
  ShareLadder shares;  // of its SMs, that launches can have
  std::string remark;  // what its operator should know, in one line; empty: nothing
};

// A range of device memory. The address means something to the device only: the host never reads through it.
struct DeviceRange {
  std::byte* address = nullptr;
  Bytes size;
  // A part of this range; outside of it is a bug.
  [[nodiscard]] DeviceRange Part(Bytes offset, Bytes length) const;
};

// A range of a device's memory as another process of this host opens it (Device::OpenPeer): a descriptor that
// can be given away, read-only, and the parts of it that are the range, one after the other: several when the
// range was mapped in pieces.
struct SharedRange {
  struct Part {
    Bytes offset;
    Bytes size;
  };
  transport::UniqueFd descriptor;
  std::vector<Part> parts;
};

// A range of another GPU's memory, opened for copies from it: one however many parts it has. What lies there
// is that GPU's business: whether it was what one wanted is known only when its owner says so after the copy.
class PeerMemory {
 public:
  virtual ~PeerMemory() = default;
  [[nodiscard]] virtual Bytes size() const = 0;
};

struct MemoryUse {
  Bytes total;
  Bytes free;
  Bytes largest;  // the largest range that could be allocated now
};

// A model made ready to run on one device for concrete input shapes. Device::Prepare makes it, and only this
// device launches it. Several launches may go on at a time, each on a stream and with memory of its own. A plan
// outlives its launches, but not its device.
class DevicePlan {
 public:
  virtual ~DevicePlan() = default;
  // The model's inputs in the order in which a launch binds them, concrete.
  [[nodiscard]] virtual std::span<const proto::TensorSpec> inputs() const = 0;
  // For outputs whose size depends on data, the upper bound.
  [[nodiscard]] virtual std::span<const proto::TensorSpec> outputs() const = 0;
  [[nodiscard]] virtual Bytes input_bytes(std::size_t i) const = 0;
  [[nodiscard]] virtual Bytes output_bytes(std::size_t i) const = 0;
  [[nodiscard]] virtual Bytes weights_bytes() const = 0;
  [[nodiscard]] virtual Bytes activation_bytes() const = 0;
  [[nodiscard]] virtual std::size_t step_count() const = 0;
  // What one step needs of the activations: those that live while it runs, and its scratch.
  [[nodiscard]] virtual Bytes step_activations(std::size_t) const { return activation_bytes(); }
  // How much of the activations, from their begin, this step and all behind it use.
  [[nodiscard]] virtual Bytes activation_extent(std::size_t) const { return activation_bytes(); }
  // Offset and length in the weights of what one step reads: a gate tells from this what the step has to wait
  // for.
  [[nodiscard]] virtual std::span<const std::pair<std::uint64_t, std::uint64_t>> step_weights(
      std::size_t step) const = 0;
};

// The event that `step` has to wait for before it starts (its group of weights is there); null: none. Called
// on a thread of the device, in the order of the steps, possibly ahead of their execution. Must not block.
using StepGate = std::function<EventPtr(std::size_t step)>;

// A part of a model's weights, by its place in the blob, and where it is on the device.
struct WeightPiece {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  DeviceRange at;
};

struct LaunchArguments {
  DeviceRange weights;
  // Instead of one range, when it is not empty: pieces by their offset, apart from each other, that hold each
  // weight which a step reads whole when its gate opens. Pieces that are not needed at the same time may lie
  // in the same place, aligned as the weights are in the blob (64 bytes).
  std::vector<WeightPiece> pieces;
  DeviceRange activations;  // at least activation_bytes()
  // Of DeviceInfo::shares: the SMs on which it computes. Launches on the same SMs slow each other down, and
  // the caller takes care that there are none (ShareGate).
  SmShare share;
  std::vector<DeviceRange> inputs;  // one of BYTES is as long as its texts and their lengths
  std::vector<DeviceRange> outputs;
  StepGate gate;
  // Called for each of `marks`, which ascend, when all steps before it have ended: on a thread of the device,
  // must be short.
  std::function<void(std::size_t step)> reached;
  std::vector<std::size_t> marks;
  // Asked between the groups of a launch, which take about `group` of the device's time each: with how long it
  // had the device since it was last asked. What the next group has to wait for; null: nothing. On a thread of
  // the device, must be short.
  std::function<EventPtr(Duration used)> turn;
  Duration group{};
  // Time on the device after which the launch ends before its next step, with DEADLINE_EXCEEDED; zero: never.
  // Time that it waits for its gate does not count.
  Duration limit{};
};

// How an operation went. `begin` is when it got its engine, not when it was put on the stream.
struct Completion {
  absl::Status status;
  Time begin;
  Time end;
  Duration cut_after{};  // of a launch that was cut at its limit: its time on the device; else zero
  Duration paused{};     // of a launch: time between begin and end that it waited for its turns
};
// Called once on a thread of the device (or on the caller's, before the call returns, for small copies): must
// be short and must not wait for the device.
using OnComplete = std::function<void(const Completion&)>;
// The same for a launch; the output shapes as they came out (equal to the plan's unless they depend on data).
using OnLaunched = std::function<void(const Completion&, std::vector<proto::TensorSpec> outputs)>;

// One engine as a watchdog sees it: a counter that stands still while the engine is busy means a hang.
struct EngineState {
  bool busy = false;
  std::uint64_t progress = 0;  // blocks copied, steps run
  Duration busy_time{};        // of its operations since it began
};

// Operations in order. An operation whose stream waits for an event that failed is not executed and ends with
// the event's error; an operation that fails by itself does not hinder those behind it on the same stream.
// Source and destination stay valid until the operation has completed. Destroying a stream waits for what is
// on it.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual EventPtr CopyIn(DeviceRange to, std::span<const std::byte> from, OnComplete done) = 0;
  virtual EventPtr CopyOut(std::span<std::byte> to, DeviceRange from, OnComplete done) = 0;
  // Within the device; the ranges do not overlap. No link is used.
  virtual EventPtr CopyWithin(DeviceRange to, DeviceRange from, OnComplete done) = 0;
  // From another GPU, over the link between the two: `to.size` bytes from `offset` of the range that this
  // stream's device opened.
  virtual EventPtr CopyPeer(DeviceRange to, std::shared_ptr<const PeerMemory> from, Bytes offset,
                            OnComplete done) = 0;
  virtual EventPtr Launch(std::shared_ptr<DevicePlan> plan, LaunchArguments arguments, OnLaunched done) = 0;
  // What is put on this stream from now on waits for `event` as well.
  virtual void Wait(EventPtr event) = 0;
  // The device raises `signal`, one of its own, when the copy that is put on this stream next has ended well.
  virtual void Raise(Signal signal) { (void)signal; }
  // Its launches alone: beside others that go on, a hang of one shows only here.
  [[nodiscard]] virtual EngineState launches() const = 0;
};

enum class Engine { kCopyIn = 0, kCopyOut = 1, kCompute = 2, kCopyPeer = 3 };

class Device {
 public:
  virtual ~Device() = default;
  [[nodiscard]] virtual const DeviceInfo& info() const = 0;

  // ResourceExhausted when no free range is long enough: memory() says what there is. Aligned to 256 bytes;
  // the size is the one asked for. Zero bytes are a range too.
  virtual absl::StatusOr<DeviceRange> Allocate(Bytes size) = 0;
  // A range that was not allocated, or freed before, is a bug. No operation uses it any more.
  virtual void Free(const DeviceRange& range) = 0;
  [[nodiscard]] virtual MemoryUse memory() const = 0;

  // Slow (primitives, graphs): off the request path. `weights` is the blob that `model` describes; it may
  // move afterwards. InvalidArgument names the tensor that does not fit the model. A device that has only
  // FP32 computes in that, whatever `precision` allows.
  virtual absl::StatusOr<std::shared_ptr<DevicePlan>> Prepare(const proto::Model& model,
                                                              std::span<const std::byte> weights,
                                                              std::span<const proto::TensorSpec> inputs,
                                                              proto::Precision precision) = 0;
  virtual std::unique_ptr<Stream> MakeStream() = 0;
  // So many signals, none of them raised. Null: this device has none, or not so many left, and launches that wait
  // are told by the host.
  [[nodiscard]] virtual SignalsPtr MakeSignals(std::size_t /*count*/) { return nullptr; }

  // Makes host memory known to the device, so that copies from it run at full speed. Once per mapping;
  // Unregister before it is unmapped.
  virtual absl::Status RegisterHost(std::span<const std::byte> memory) = 0;
  virtual void UnregisterHost(std::span<const std::byte> memory) = 0;
  // The node's simulated links, from now on; a device with real ones ignores them.
  virtual absl::Status UseLinks(std::shared_ptr<transport::LinkBuckets> links) = 0;

  // Allocated memory under a second address: `pieces` one after the other, each but the last a whole number
  // of units of MappingUnit() and each beginning at one. At `address`, or (0) anywhere; AlreadyExists when
  // something lies there. It lasts until Unmap, which does not wait: nothing uses the address any more. Zero:
  // this device maps nothing.
  [[nodiscard]] virtual Bytes MappingUnit() const { return {}; }
  virtual absl::StatusOr<DeviceRange> Map(std::uint64_t /*address*/,
                                          std::span<const DeviceRange> /*pieces*/) {
    return absl::UnimplementedError("this device maps no memory");
  }
  virtual void Unmap(const DeviceRange& /*mapped*/) {}

  // Whether the first bytes of an allocated range are these, as the host has them. Blocks, so it is called on a
  // thread of the caller's; takes no link. Unimplemented: what lies in this device's memory ends with its
  // process, so that there is nothing to compare.
  virtual absl::StatusOr<bool> Holds(const DeviceRange& /*range*/, std::span<const std::byte> /*bytes*/) {
    return absl::UnimplementedError("this device's memory ends with its worker");
  }

  // Memory for the workers of this host's other GPUs to copy from, and theirs. Share: a range that is
  // allocated, or mapped. OpenPeer: `gpu` is the other one's index in its node, and with it the link that
  // copies take; OutOfRange for what lies outside of the memory, NotFound without a link between the two.
  virtual absl::StatusOr<SharedRange> Share(const DeviceRange& range) = 0;
  virtual absl::StatusOr<std::shared_ptr<const PeerMemory>> OpenPeer(std::uint32_t gpu,
                                                                     SharedRange range) = 0;

  // Broadcasts between this GPU's allocated or mapped memory and that of other GPUs of its node, each in a
  // process of its own; lives as long as the device. Null: there is no way, or a library is missing.
  [[nodiscard]] virtual transport::Broadcaster* broadcaster() { return nullptr; }

  // Not OK: the device is lost, nothing on it can be used again and the process should end.
  [[nodiscard]] virtual absl::Status Health() const = 0;
  [[nodiscard]] virtual EngineState engine(Engine which) const = 0;
  // Time that the compute engine was busy since the device was made, whatever shared it.
  [[nodiscard]] virtual Duration compute_busy() const = 0;

  // Faults that tests ask for: the compute engine never ends an operation again; the copy engines stop moving
  // bytes.
  virtual absl::Status HangCompute() = 0;
  virtual absl::Status StallCopies() = 0;
};

}  // namespace troupe::gpu
