// Workers that are lost, and how soon another worker gives the same function's result.
#include <cstdlib>

#include "bench/device_bed.hpp"
#include "gpu/worker/exit_codes.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu::bench {
namespace {

using transport::SteadyNow;

class Victim {
 public:
  explicit Victim(Bed& bed) : bed_(bed), network_(bed.networks().front()) { StartAndServe(); }

  // What a worker has to do before it answers: start, prepare, swap in, run.
  void StartAndServe() {
    WorkerCommand command;
    command.allow_faults = true;
    rig_.reset();
    rig_ = bed_.Start(command, Bytes(network_.model.weights) + bed_.options().spare);
    for (const proto::WorkerOrder& order :
         {network_.model.prepare, SwapInOf(network_.model.copy), network_.model.run})
      (void)rig_->Ask(order);
  }
  transport::ProcessEnd AwaitEnd() {
    return Value(rig_->connection().process().Wait(kPatience), "the worker's end");
  }
  Rig& rig() { return *rig_; }

 private:
  Bed& bed_;
  const Network& network_;
  std::unique_ptr<Rig> rig_;
};

}  // namespace

void MeasureFault(Bed& bed) {
  // In workers of a real GPU an injected hang becomes this fault.
  (void)setenv("TROUPE_CUDA_HANG", "illegal-access", 1);
  Victim victim(bed);
  Time lost = SteadyNow();
  (void)victim.rig().connection().Kill();
  (void)victim.AwaitEnd();
  victim.StartAndServe();
  Say("worker_killed_to_answer_ms", ToMillis(SteadyNow() - lost));
  if (!bed.real()) return Note("an illegal access: a virtual GPU has none");
  proto::WorkerOrder fault;
  fault.mutable_fault()->set_kind(proto::FaultOrder::HANG);
  lost = SteadyNow();
  (void)victim.rig().Send(fault);
  const transport::ProcessEnd end = victim.AwaitEnd();
  if (end.signaled || end.code != kExitDeviceLost)
    std::fprintf(stderr, "after an illegal access the worker ended with %s\n", end.ToString().c_str());
  TROUPE_CHECK(!end.signaled && end.code == kExitDeviceLost, "an illegal access is told by its exit code");
  Say("illegal_access_to_exit_ms", ToMillis(SteadyNow() - lost));
  victim.StartAndServe();
  Say("illegal_access_to_answer_ms", ToMillis(SteadyNow() - lost));
}

}  // namespace troupe::gpu::bench
