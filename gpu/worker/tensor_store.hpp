// TENSOR STORE: outputs of runs that stay with this worker until the node releases them (004 StreamBox, section 6): the
// next step of a workflow reads them where they are.
//
//   Reserve -(its run failed)-> GiveBack
//   Reserve -(Keep)-> on the device -(MakeRoom: weights or runs need the memory)-> in the arena
//                     on the device -(Export: a reader elsewhere; Tick: memory will be needed)-> on the device and in the arena
//   each of these -(Drop)-> gone, as soon as no run reads it and no copy is under way
//
// The numbers are the daemon's. What the device has no room for leaves it with its run, as every output of a request
// that keeps nothing. The main loop's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
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
#include "gpu/memory/fixed_region.hpp"
#include "gpu/memory/intermediates.hpp"
#include "gpu/memory/memory_pressure.hpp"
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

  // Moves tensors that no run reads to the arena, first those that are there already, then large ones, until `size` bytes of
  // device memory are given back or none is left to move: the bytes that were. Waits for the copies, which take a small part
  // of the time that the memory's next user needs for its own.
  Bytes MakeRoom(Bytes size);
  // Called often: begins to copy to the arena what will be moved if as much is lacking as lately, large tensors first.
  void Tick(Time now);

  [[nodiscard]] bool Has(std::uint64_t number) const { return tensors_.contains(number); }
  [[nodiscard]] const std::string& policy() const { return options_.name; }
  [[nodiscard]] std::size_t size() const { return tensors_.size(); }
  [[nodiscard]] Bytes on_device() const { return count_.on_device; }  // with what is reserved
  [[nodiscard]] Bytes kept() const { return count_.kept; }            // wherever it is
  // What has left the device for room since the start.
  [[nodiscard]] Bytes moved() const { return count_.moved; }
  // What was copied to the arena since the start, for room or for readers elsewhere.
  [[nodiscard]] Bytes bytes_out() const { return count_.out; }

 private:
  // A copy to the arena that is under way.
  struct Course {
    std::shared_ptr<transport::Reservation> room{};
    std::promise<absl::Status> ended{};  // by the device
    std::shared_future<absl::Status> status = ended.get_future().share();
    bool settled = false;  // the store has heard of it
  };
  using CoursePtr = std::shared_ptr<Course>;
  struct Place {
    std::optional<proto::TensorRef> ref;  // once the bytes are there
    CoursePtr course;                     // until then
    std::vector<Exported> waiting;        // for it
  };
  using Extent = std::pair<Bytes, Bytes>;  // offset, length
  struct Tensor {
    Bytes size;
    std::optional<DeviceRange> range;
    std::map<Extent, Place> places{};  // in the arena; without a range, all of it is one of them
    ChannelPtr channel;
    std::size_t users = 0;   // runs that read it, and pins
    std::size_t copies = 0;  // under way
    bool dropped = false;
  };
  using Tensors = std::map<std::uint64_t, Tensor>;
  [[nodiscard]] absl::StatusOr<Tensors::iterator> Find(const Part& part);
  [[nodiscard]] static absl::StatusOr<transport::TensorData> HostBytes(const Tensor& tensor);
  void CopyOut(Tensor& tensor, const Part& part);
  // Nothing happens if it was settled before.
  void Settle(const Part& part, const CoursePtr& course);
  // False: it stays.
  bool Move(Tensors::iterator it);
  // Waits for the copy of all of it. False: there is none.
  bool AwaitCopy(Tensors::iterator it);
  bool CopyNow(Tensor& tensor);
  void EraseIfUnused(Tensors::iterator it);
  void Erase(Tensors::iterator it);
  void FreeRange(Tensor& tensor);
  // All of it is in the arena, too; or on its way there.
  [[nodiscard]] static bool IsCopied(const Tensor& tensor);
  [[nodiscard]] static CoursePtr CourseOf(const Tensor& tensor);
  // Those on the device that no run reads: in the arena already or on their way, then large ones.
  [[nodiscard]] std::vector<Tensors::iterator> Movable();

  DeviceMemory& memory_;
  TaskQueue& queue_;
  DeviceLinks& links_;
  const IntermediatesOptions options_;
  const IntermediatesPolicy policy_;
  const Bytes capacity_;               // of device memory
  std::optional<FixedRegion> region_;  // where they lie, if it is set aside
  std::unique_ptr<Stream> stream_;     // of moves
  MemoryPressure pressure_;
  Tensors tensors_;
  struct {
    Bytes on_device;
    Bytes kept;
    Bytes moved;
    Bytes out;
  } count_;
};

}  // namespace troupe::gpu
