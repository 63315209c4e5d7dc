// RUNTIMES: the worker processes of this node, a fixed number on each GPU: what each of them reported last,
// and which isolation key it serves. Executors start and watch them; this part tells the others what changed.
//
//   starting -> ready -(lost)-> down -> starting ...      unfit: no other worker will come
//   ready -(assigned to another key)-> starting
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/alarm.hpp"
#include "node/events.hpp"
#include "node/runtimes/order_purposes.hpp"

namespace troupe::node {

struct Parts;

class Runtimes {
 public:
  using ResidentList = google::protobuf::RepeatedPtrField<proto::ResidentModel>;
  explicit Runtimes(Parts& parts);

  void On(const WorkerReported& event);
  void On(const KillAsked& event);
  void On(const FaultAsked& event);
  void On(const FaultOrdered& purpose, const proto::WorkerOutcome& outcome);
  void OnGiveBackTimer();

  // It is to serve another key.
  void Reassign(const Assignment& order);
  // The next time to look for runtimes that were idle for long.
  void ArmGiveBack();

  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(runtimes_.size()); }
  [[nodiscard]] const proto::ExecutorReport& Last(GpuIndex gpu) const { return runtimes_[gpu].last; }
  [[nodiscard]] bool Up(GpuIndex gpu) const {
    return runtimes_[gpu].last.state() == proto::ExecutorReport::READY;
  }
  // The number of its worker: each new one has another.
  [[nodiscard]] std::uint64_t Life(GpuIndex gpu) const { return runtimes_[gpu].last.incarnation(); }
  // It is up, and the worker is still the one with this number.
  [[nodiscard]] bool Lives(GpuIndex gpu, std::uint64_t life) const { return Life(gpu) == life && Up(gpu); }
  // It is up, and serves the key of this copy.
  [[nodiscard]] bool Serves(GpuIndex gpu, const ModelNumber& copy) const;
  // The models that its worker has and this node does not know.
  [[nodiscard]] ResidentList& Residents(GpuIndex gpu) {
    return *runtimes_[gpu].last.mutable_worker()->mutable_resident();
  }
  // One of them, by its packed digest, became known: its size, unless it is not there.
  std::optional<Bytes> TakeOrphan(GpuIndex gpu, const std::string& packed);
  // A GPU is ready while one of its runtimes is, unfit when all are.
  [[nodiscard]] bool Unfit(std::uint32_t device) const {
    return StateOf(device) == proto::ExecutorReport::UNFIT;
  }
  // A runtime of it has come up before, and is not unfit since: if its worker is down, the next one comes soon.
  [[nodiscard]] bool Works(std::uint32_t device) const;
  [[nodiscard]] proto::GpuRecord Record(std::uint32_t device) const;
  [[nodiscard]] static std::string StateName(proto::ExecutorReport::State state);

 private:
  struct Runtime {
    proto::ExecutorReport last{};
    std::optional<std::string> coming{};  // what its worker was ordered to serve, until it is ready or lost
    bool takes_input_parts = false;       // as its latest worker said; before the first one: no
    bool was_up = false;
  };
  [[nodiscard]] proto::ExecutorReport::State StateOf(std::uint32_t device) const;
  [[nodiscard]] bool TakesInputParts(std::uint32_t device) const;
  void Tell(const proto::ExecutorReport& report);
  void Starting(const proto::ExecutorReport& report);
  void WorkerUp(const proto::ExecutorReport& report);
  void TellKept(GpuIndex gpu, const proto::KeptWeights& kept);
  [[nodiscard]] Bytes BytesOf(const ModelNumber& copy, const proto::ResidentModel& resident,
                              const proto::WorkerDescription& worker) const;
  [[nodiscard]] absl::Status InjectFault(const FaultAsked& event);

  Parts& parts_;
  std::vector<Runtime> runtimes_;
  Alarm give_back_;
};

}  // namespace troupe::node
