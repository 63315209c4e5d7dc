// ORDER HANDLER: gives each order of the daemon to the part of the worker that executes it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "gpu/device/device.hpp"
#include "gpu/worker/consolidator.hpp"
#include "gpu/worker/lanes.hpp"
#include "gpu/worker/limits.hpp"
#include "gpu/worker/pin_table.hpp"
#include "gpu/worker/preparer.hpp"
#include "gpu/worker/reply.hpp"
#include "gpu/worker/residency.hpp"
#include "gpu/worker/runner.hpp"
#include "gpu/worker/session.hpp"
#include "gpu/worker/state_handler.hpp"
#include "gpu/worker/task_queue.hpp"
#include "gpu/worker/tensor_store.hpp"
#include "gpu/worker/weight_record.hpp"
#include "gpu/worker/worker_device.hpp"
#include "gpu/worker/worker_meter.hpp"

namespace troupe::gpu {

// Owns what lasts from the first adoption to the end: the device's models, plans and runs. Every order is
// answered once, an invalid order too; Cancel, Release and Unpin are not answered. The main loop's thread.
class OrderHandler {
 public:
  struct Options {
    std::string generation;
    bool allow_faults = false;
    WorkerLimits limits;
    MemoryOptions memory;
    SwapOptions swap;
    SharingOptions sharing{};
    IntermediatesOptions intermediates{};
    std::shared_ptr<GatePage> gate{};
    std::uint32_t gpu = 0;  // index in its node
    std::string meetings;   // socket at which others meet for what this worker broadcasts; empty: it does not
    std::shared_ptr<transport::SocketRefusals> refusals{};  // at that socket; null: not shown
    WorkerMeter meter{};
    std::shared_ptr<WeightRecord> weights{};  // in this device's memory; null: they end with this worker
  };
  // Probes the device's link, unless the size of groups is given: takes up to DeviceLinks::kProbeBudget.
  OrderHandler(std::unique_ptr<Device> device, TaskQueue& queue, Lanes lanes, Options options);

  // One record of the session's order ring.
  void Take(const std::shared_ptr<Session>& session, const transport::RingRecord& record);
  // The daemon is gone: what has not begun is dropped.
  void Abandon();
  // Called often: expires runs, brings the control page up to date.
  void Tick(Time now);
  [[nodiscard]] Time NextDue() const { return runner_.NextDue(); }

  // From a Shutdown order or a signal on new work is refused, what waits is failed and what computes
  // finishes.
  void BeginShutdown();
  [[nodiscard]] bool shutting_down() const { return shutting_down_; }
  [[nodiscard]] bool idle() const { return runner_.in_flight() == 0 && residency_.table().loading() == 0; }
  // It has, or has had, models or plans.
  [[nodiscard]] bool used() const {
    return runner_.runs_done() > 0 || residency_.swapped().models > 0 || preparer_.cache().size() > 0 ||
           residency_.kept().size() > 0 || !idle();
  }
  // Whom this worker serves, for its description.
  void Serve(const std::string& key) { isolation_key_ = key; }
  // Answers the Shutdown order.
  void FinishShutdown();

  [[nodiscard]] proto::WorkerDescription Describe() const;
  // A daemon has the description.
  void Described() { residency_.kept().Reported(); }
  [[nodiscard]] Device& device() { return *device_.device; }
  [[nodiscard]] DeviceLinks& links() { return device_.links; }

 private:
  void Execute(const std::shared_ptr<Session>& session, proto::WorkerOrder order, Reply reply);
  void Prepare(const std::shared_ptr<Session>& session, proto::PrepareOrder order, Reply reply);
  void SwapIn(const std::shared_ptr<Session>& session, const proto::SwapInOrder& order, Reply reply);
  void Run(const std::shared_ptr<Session>& session, proto::RunOrder order, Reply reply);
  void Export(const proto::ExportOrder& order, Reply reply);
  void ShowLinks();
  void Fault(const proto::FaultOrder& order, Reply reply);

  Lanes lanes_;
  const Options options_;
  WorkerDevice device_;  // ends after what uses it
  Residency residency_;
  StateHandler states_;
  Preparer preparer_;
  Runner runner_;
  Consolidator consolidator_;
  PinTable pins_;
  bool shutting_down_ = false;
  std::string isolation_key_;
  std::optional<Reply> shutdown_reply_;
};

}  // namespace troupe::gpu
