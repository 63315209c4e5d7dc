// A stream of a GPU: a CUDA stream, a thread that puts operations on it and a thread that tells of their
// ends.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "gpu/cuda/context.hpp"
#include "gpu/cuda/event.hpp"
#include "gpu/cuda/green_contexts.hpp"
#include "gpu/cuda/host_pins.hpp"
#include "gpu/cuda/meter.hpp"
#include "gpu/cuda/stream_pipeline.hpp"
#include "gpu/cuda/weights_ahead.hpp"
#include "gpu/device/device.hpp"

namespace troupe::gpu::cuda {

// One for each engine of Engine, of a whole device.
using Meters = std::array<Meter, 4>;

// What an operation has put on the CUDA stream so far.
class Submission {
 public:
  Submission(Context& context, CUstream stream, CUstream lane)
      : context_(context), stream_(stream), lane_(lane) {}
  [[nodiscard]] Context& context() const { return context_; }
  [[nodiscard]] CUstream stream() const { return stream_; }
  // The stream's own CUDA stream, from which a launch with a share of the SMs departs.
  [[nodiscard]] CUstream lane() const { return lane_; }
  // What follows on the stream waits for `event`. Blocks until the event is submitted itself; not at all, when it has
  // signals of this GPU (a group of weights on its way); or, when only the host knows of it, until it is done. Its
  // error, if it failed by then.
  absl::Status Wait(const EventPtr& event);
  // A step of a launch that waits was put on the stream. Blocks while too many steps have no weights.
  absl::Status StepPut();
  // `then` is called when the GPU has come so far: on the stream's thread, must be short.
  absl::Status Mark(std::function<void()> then);
  // The same when all of it has ended well, which takes no event of its own.
  void AtEnd(std::function<void()> then) { at_end_ = std::move(then); }
  // A watchdog is to see that the host gets on with it.
  void Alive() const {
    if (alive_) alive_();
  }
  // Waits until all of it so far has ended, telling of what it passes meanwhile; how long it has been on the
  // GPU, without the time that it waited for others there (CountWaits).
  absl::StatusOr<Duration> AwaitAll();
  // Waits for the launch's next turn, when AwaitAll has said that nothing of it is under way.
  absl::Status AwaitTurn(const EventPtr& turn);
  // From now on Wait looks how long the GPU waits.
  void CountWaits() { waits_.counted = true; }
  [[nodiscard]] bool counts_waits() const { return waits_.counted; }
  // It ends here, at its limit: after so long on the GPU.
  void Cut(Duration after) { cut_after_ = after; }
  // Told when all of it has ended well, of the same time as AwaitAll's.
  void Measure(std::function<void(Duration)> measured) { measured_ = std::move(measured); }
  // Asked when all of it has ended well: whether what it did made sense.
  void Verify(std::function<absl::Status()> verify) { verify_ = std::move(verify); }

 private:
  friend class CudaStream;
  struct Milestone {
    EventHandle reached;
    std::function<void()> then;
    std::size_t weights = 0;  // of Waits::weights, that come before it
  };
  // Between two events the GPU waited for something that is not on this stream.
  using Gap = std::pair<EventHandle, EventHandle>;
  struct Waits {
    bool counted = false;
    std::vector<Gap> gaps{};  // the gaps that `waited` does not include yet
    Duration waited{};        // the sum of the other gaps
    Duration paused{};        // the time that the host waited for turns
    WeightsAhead weights{};
  };
  // `wait` puts a wait on the stream, whose time is counted.
  absl::Status Counted(const std::function<absl::Status()>& wait);
  absl::Status WaitFor(const EventPtr& event);
  absl::Status WaitHere(const Event& event);
  bool TellReached();

  Context& context_;
  const CUstream stream_;
  const CUstream lane_;
  std::deque<Milestone> milestones_;
  std::function<void()> at_end_;
  std::function<void()> alive_;  // a watchdog is to see that nothing hangs while the host is waited for
  std::vector<std::shared_ptr<const CudaEvent>> awaited_;
  std::function<absl::Status()> verify_;
  EventHandle begin_;
  Waits waits_;
  Duration cut_after_{};
  std::function<void(Duration)> measured_;
};

// A plan of this device: launches put their kernels on the submission's stream.
class CudaPlan : public DevicePlan {
 public:
  // OK, or why its steps could not be recorded when it was made: then its first launch loads their code.
  [[nodiscard]] virtual absl::Status recorded() const = 0;
  // `moved` is told of steps that have ended.
  virtual absl::Status Submit(Submission& submission, const LaunchArguments& arguments,
                              const std::function<void(std::uint64_t)>& moved) = 0;
};

//   pushed -> submitted -> reported
// A launch with a share of the SMs is on the stream of its green context, behind all before it and before all
// behind it. What can be submitted without waiting is, on the thread that pushes it. The order of the CUDA
// stream is the order of the operations; an error of the GPU's work ends the context, so what waits for
// another stream's work waits on the GPU alone.
class CudaStream final : public Stream {
 public:
  // Without a stream there is nothing to go on with: a GPU that makes none is lost.
  static absl::StatusOr<std::unique_ptr<CudaStream>> Make(Context& context, Meters& meters,
                                                          GreenContexts& shares, const HostPins& pins);
  ~CudaStream() override;

  EventPtr CopyIn(DeviceRange to, std::span<const std::byte> from, OnComplete done) override;
  EventPtr CopyOut(std::span<std::byte> to, DeviceRange from, OnComplete done) override;
  EventPtr CopyWithin(DeviceRange to, DeviceRange from, OnComplete done) override;
  EventPtr CopyPeer(DeviceRange to, std::shared_ptr<const PeerMemory> from, Bytes offset,
                    OnComplete done) override;
  EventPtr Launch(std::shared_ptr<DevicePlan> plan, LaunchArguments arguments, OnLaunched done) override;
  void Wait(EventPtr event) override;
  void Raise(Signal signal) override;
  [[nodiscard]] EngineState launches() const override { return own_.state(); }

 private:
  struct Operation {
    Engine engine{};
    bool at_once = false;  // submitting it takes no waiting
    SmShare share;         // where it goes
    std::function<absl::Status(Submission&)> submit;
    std::function<void(const Completion&)> report;
    std::shared_ptr<CudaEvent> event = std::make_shared<CudaEvent>();
    std::vector<EventPtr> waits;
    std::shared_ptr<const CudaSignals> raises{};  // null: none of them
    std::size_t raised = 0;                       // which
  };
  struct Flying {
    Operation operation;
    absl::Status status;  // of its submission
    EventHandle begin;    // null: its time is not the GPU's
    EventHandle end;      // null: nothing of it got onto the CUDA stream
    Time submitted;
    std::deque<Submission::Milestone> milestones;
    std::function<void()> at_end;
    std::vector<std::shared_ptr<const CudaEvent>> awaited;  // what it waited for is told first
    std::function<absl::Status()> verify;
    Submission::Waits waits;
    Duration cut_after{};
    std::function<void(Duration)> measured;
  };
  CudaStream(Context& context, Meters& meters, GreenContexts& shares, const HostPins& pins, CUstream stream);
  static Operation Copy(Engine engine, bool at_once, OnComplete done);
  EventPtr Push(Operation operation);
  Flying Submit(Operation operation);
  absl::Status Put(Operation& operation, Submission& submission, Flying& flying, bool timed) const;
  // `later` goes on when `earlier` has come to where it is now.
  absl::Status Follow(CUstream later, CUstream earlier) const;
  void Tell(Flying& flying);
  // Until the GPU has come to all of the milestones, telling of them. The first error of the weights that it waited
  // for, or the GPU's.
  absl::Status TellMilestones(Flying& flying);
  // A launch waits for something that is not on its stream.
  void Alive();
  Meter& meter(Engine engine) { return meters_[static_cast<std::size_t>(engine)]; }

  Context& context_;
  Meters& meters_;
  GreenContexts& shares_;
  const HostPins& pins_;
  const CUstream stream_;
  Meter own_;  // of its launches
  Time told_;  // when the operation before ended; of the thread that tells
  std::mutex pushing_;
  std::vector<EventPtr> waits_;                 // for the next operation; guarded by pushing_
  Signal raises_;                               // by the next operation; guarded by pushing_
  StreamPipeline<Operation, Flying> pipeline_;  // ends first
};

}  // namespace troupe::gpu::cuda
