// TENSOR STORE: outputs of runs that stay with this worker until the node releases them (004 StreamBox, section 6): the
// next step of a workflow reads them where they are.
//
//   Reserve -(its run failed)-> GiveBack
//   Reserve -(Keep)-> on the device -(MakeRoom: weights or runs need the memory)-> in the arena
//                     on the device -(Export: a reader elsewhere)-> on the device and in the arena
//   each of these -(Drop)-> gone, as soon as no run reads it and no copy is under way
//
// The numbers are the daemon's. What the device has no room for leaves it with its run, as every output of a request
// that keeps nothing. The main loop's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/memory/device_memory.hpp"
#include "gpu/memory/intermediates.hpp"
#include "gpu/swap/device_links.hpp"
#include "gpu/worker/task_queue.hpp"
#include "proto/tensor.pb.h"
#include "transport/local_channel.hpp"

namespace troupe::gpu {

class TensorStore {
 public:
  using ChannelPtr = std::shared_ptr<transport::LocalChannel>;
  // A part of a tensor, in bytes.
  struct Part {
    std::uint64_t number = 0;
    Bytes offset{};
    Bytes length{};
  };
  // How a run reads one: on the device, or (without a range) as bytes of the host.
  struct Input {
    std::optional<DeviceRange> on_device;
    std::span<const std::byte> in_arena;
    transport::TensorData keeper;  // of those
  };
  using Exported = std::function<void(const absl::StatusOr<proto::ArenaRef>& place)>;

  TensorStore(DeviceMemory& memory, TaskQueue& queue, DeviceLinks& links,
              const IntermediatesOptions& options);
  ~TensorStore();

  // Room on the device for an output of a model's run, beside what is kept; nothing: it is to leave the device.
  [[nodiscard]] std::optional<DeviceRange> Reserve(std::string_view digest, Bytes size);
  void GiveBack(const DeviceRange& range);
  // The run is answered: the first `size` bytes of the range are the tensor. AlreadyExists for a number that is taken:
  // the range is given back.
  absl::Status Keep(std::uint64_t number, const DeviceRange& range, Bytes size, ChannelPtr channel);

  // A run is to read this part, and it stays where it is until Leave. NotFound: the tensor was dropped, or never was;
  // OutOfRange: it is shorter.
  [[nodiscard]] absl::StatusOr<Input> Use(const Part& part);
  void Leave(std::uint64_t number);
  // Brings a part to a place of its own in the arena, once, and answers where it is until Drop. Errors as above;
  // ResourceExhausted: the arena is full.
  void Export(const Part& part, Exported done);
  void Drop(std::uint64_t number);
  // The daemon is gone, and its arena with it.
  void DropAll();

  // Moves tensors that no run reads to the arena, large ones first, until `size` bytes of device memory are given back
  // or none is left to move: the bytes that were. Waits for the copies, which take a small part of the time that the
  // memory's next user needs for its own.
  Bytes MakeRoom(Bytes size);

  [[nodiscard]] const std::string& policy() const { return options_.name; }
  [[nodiscard]] std::size_t size() const { return tensors_.size(); }
  [[nodiscard]] Bytes on_device() const { return on_device_; }  // with what is reserved
  [[nodiscard]] Bytes kept() const { return kept_; }            // wherever it is
  // What has left the device for room since the start.
  [[nodiscard]] Bytes moved() const { return moved_; }
  // What was copied to the arena since the start, for room or for readers elsewhere.
  [[nodiscard]] Bytes bytes_out() const { return bytes_out_; }

 private:
  struct Place {
    std::optional<proto::TensorRef> ref;  // once the bytes are there
    std::vector<Exported> waiting;        // until then
  };
  using Extent = std::pair<Bytes, Bytes>;  // offset, length
  struct Tensor {
    Bytes size;
    std::optional<DeviceRange> range;
    std::map<Extent, Place> places{};  // in the arena; without a range, all of it is one of them
    ChannelPtr channel;
    std::size_t users = 0;  // runs that read it, and copies
    bool dropped = false;
  };
  using Tensors = std::map<std::uint64_t, Tensor>;
  [[nodiscard]] absl::StatusOr<Tensors::iterator> Find(const Part& part);
  [[nodiscard]] static absl::StatusOr<transport::TensorData> HostBytes(const Tensor& tensor);
  void CopyOut(Tensor& tensor, const Part& part);
  void Copied(const Part& part, const std::shared_ptr<transport::Reservation>& room,
              const absl::Status& status);
  // False: it stays.
  bool Move(Tensor& tensor);
  void Erase(Tensors::iterator it);
  void FreeRange(Tensor& tensor);

  DeviceMemory& memory_;
  TaskQueue& queue_;
  DeviceLinks& links_;
  const IntermediatesOptions options_;
  const IntermediatesPolicy policy_;
  const Bytes capacity_;            // of device memory
  std::unique_ptr<Stream> stream_;  // of moves
  Tensors tensors_;
  Bytes on_device_;
  Bytes kept_;
  Bytes moved_;
  Bytes bytes_out_;
};

}  // namespace troupe::gpu
