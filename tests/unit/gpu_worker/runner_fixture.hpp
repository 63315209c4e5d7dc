// Residency, preparation and runs work together on a small virtual device, without a process or a ring.
#pragma once

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gpu/device/virtual_device.hpp"
#include "gpu/worker/runner.hpp"
#include "gtest/gtest.h"
#include "tests/temporary_directory.hpp"
#include "tests/unit/gpu_worker/host_copies.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu::test {

// A plan whose run waits until the test lets it go.
struct Gatekeeper {
  std::mutex mutex;
  std::condition_variable changed;
  bool closed = false;
  int entered = 0;  // the runs that have come so far
  int inside = 0;
  int most = 0;  // the most runs that were inside at once
  void Set(bool value) {
    const std::lock_guard lock(mutex);
    closed = value;
    changed.notify_all();
  }
  void Pass() {
    std::unique_lock lock(mutex);
    ++entered;
    most = std::max(most, ++inside);
    changed.notify_all();
    changed.wait(lock, [this] { return !closed; });
    --inside;
  }
};

class HeldPlan : public FakePlan {
 public:
  HeldPlan(std::int64_t rows, std::shared_ptr<Gatekeeper> gate) : FakePlan(rows), gate_(std::move(gate)) {}
  absl::StatusOr<std::vector<proto::TensorSpec>> Run(const PlanBindings& bindings) const override {
    gate_->Pass();
    return FakePlan::Run(bindings);
  }

 private:
  std::shared_ptr<Gatekeeper> gate_;
};

class RunnerTest : public testing::Test {
 protected:
  using MakeDevice = std::function<std::unique_ptr<Device>(VirtualDeviceOptions)>;
  static std::unique_ptr<Device> MakePlain(VirtualDeviceOptions options) {
    return *MakeVirtualDevice(std::move(options), *transport::MemoryFile::Create("device", MiB(4)), nullptr);
  }
  explicit RunnerTest(const MakeDevice& make = MakePlain,
                      SwapOptions swap = {.group = KiB(256), .block = KiB(64)},
                      const MemoryOptions& memory = {}, const SharingOptions& sharing = {},
                      const IntermediatesOptions& intermediates = {}) {
    VirtualDeviceOptions options;
    options.builder = [gate = gate_](const proto::Model& model, std::span<const std::byte>,
                                     std::span<const proto::TensorSpec> inputs,
                                     int) -> absl::StatusOr<std::unique_ptr<Plan>> {
      if (model.name() == "broken") return absl::UnimplementedError("no such operator");
      return std::make_unique<HeldPlan>(inputs[0].shape(0), gate);
    };
    worker_device_ = std::make_unique<WorkerDevice>(
        make(std::move(options)), *queue_, WorkerDevice::Options{swap, memory, sharing, intermediates},
        limits_, nullptr);
    device_ = worker_device_->device.get();
    links_ = &worker_device_->links;
    memory_ = &worker_device_->memory;
    tensors_ = &worker_device_->tensors;
    residency_ = std::make_unique<Residency>(*memory_, *queue_, *links_, limits_);
    preparer_ = std::make_unique<Preparer>(*device_, *queue_, Lanes(PageOf(page_)), limits_);
    runner_ = std::make_unique<Runner>(*worker_device_, *queue_, Lanes(PageOf(page_)), limits_, *residency_,
                                       *preparer_);
    residency_->Connect(
        {[this](const auto& digest, const auto& status) { runner_->ModelChanged(digest, status); },
         [this](const auto& digest) { return runner_->Wants(digest); },
         [this](Bytes size) { return tensors_->MakeRoom(size) > Bytes(0); }});
    transport::LocalChannel::Options channel;
    channel.socket = directory_ / "arena";
    channel.capacity = MiB(4);
    channel_ = *transport::LocalChannel::Create(channel);
    transport::HostRegion::Options region;
    region.size = MiB(16);
    host_ = *transport::HostRegion::Create("host", region);
    region_ = std::make_shared<const transport::HostRegionView>(
        *transport::HostRegionView::Open(transport::UniqueFd(dup(host_->fd()))));
  }
  ~RunnerTest() override { gate_->Set(false); }

  Reply ReplyFor(std::uint64_t sequence) {
    return Reply(sequence, transport::SteadyNow(), [this](proto::WorkerOutcome outcome) {
      order_.push_back(outcome.sequence());
      outcomes_[outcome.sequence()] = std::move(outcome);
    });
  }
  HostModel Host(const proto::HostCopy& copy) { return *ResolveHostCopy(region_, copy); }
  void PumpOnce() {
    while (!queue_->Run()) {
      if (!queue_->Arm()) continue;
      pollfd fd{queue_->fd(), POLLIN, 0};
      ASSERT_GT(poll(&fd, 1, 30'000), 0) << "nothing happened";
      queue_->Disarm();
    }
  }
  const proto::WorkerOutcome& Await(std::uint64_t sequence) {
    while (!outcomes_.contains(sequence) && !HasFatalFailure()) PumpOnce();
    return outcomes_[sequence];
  }
  // Waits until a run computes. A launch may reach its engine a moment after its stream took it, and no event
  // tells of it.
  void AwaitBusy() {
    while (!device_->engine(Engine::kCompute).busy && !HasFatalFailure()) {
      if (!queue_->Run()) std::this_thread::yield();
    }
  }
  void PumpUntilStage(std::size_t prepared) {
    while (preparer_->cache().size() < prepared && !HasFatalFailure()) PumpOnce();
  }
  void SwapIn(std::uint64_t sequence, const proto::HostCopy& copy) {
    residency_->SwapIn(Host(copy), std::nullopt, ReplyFor(sequence));
  }
  void Prepare(std::uint64_t sequence, const proto::HostCopy& copy, std::int64_t rows) {
    preparer_->Prepare(sequence, Host(copy), {Spec("x", {rows, kColumns})}, proto::PRECISION_FP32,
                       [](const auto&) {});
  }
  // Makes the model resident and its plan for one row: orders 1 and 2.
  proto::HostCopy BringSmall(const std::string& digest) {
    const auto copy = PlaceSmall(*host_, digest);
    SwapIn(1, copy);
    Prepare(2, copy, 1);
    PumpUntilStage(1);
    Await(1);
    return copy;
  }
  void Run(std::uint64_t sequence, const std::string& digest, std::int64_t rows = 1,
           std::uint32_t priority = 0, std::int64_t timeout_ns = 0, const proto::HostCopy* copy = nullptr) {
    RunRequest request;
    request.sequence = sequence;
    request.order.set_digest(digest);
    request.order.set_priority(priority);
    request.order.set_timeout_ns(timeout_ns);
    request.order.set_function(function_);
    *request.order.mutable_sharing() = sharing_;
    request.order.mutable_sharing()->set_sm_partition(share_);
    request.order.set_run_limit_ns(run_limit_.count());
    *request.order.add_inputs() = input_ ? *input_ : SmallInput(rows);
    for (const proto::Tensor& part : more_) {
      *request.order.add_inputs() = part;
      request.order.mutable_inputs()->rbegin()->set_continues(true);
    }
    if (keep_ != 0) {
      request.order.add_keep()->set_output("y");
      request.order.mutable_keep(0)->set_number(keep_);
    }
    if (copy != nullptr) request.host = Host(*copy);
    request.channel = channel_;
    request.received = transport::SteadyNow();
    request.deadline = deadline_;
    runner_->Submit(std::move(request), ReplyFor(sequence));
  }
  int Code(std::uint64_t sequence) { return Await(sequence).code(); }
  static int CodeOf(absl::StatusCode code) { return static_cast<int>(code); }
  void EvictAll() {
    std::uint64_t sequence = 1'000'000;
    for (const auto& [digest, size] : residency_->table().Resident())
      residency_->Evict(digest, ReplyFor(sequence++));
  }
  std::vector<float> Output(std::uint64_t sequence) {
    const std::string& bytes = Await(sequence).run().outputs(0).data().inlined();
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  troupe::test::TemporaryDirectory directory_;
  std::shared_ptr<Gatekeeper> gate_ = std::make_shared<Gatekeeper>();
  std::optional<Time> deadline_{};  // the deadline of runs from now on
  std::uint32_t share_ = 0;         // percent of the SMs, of runs from now on
  std::string function_;            // of runs from now on, as the next line
  proto::GpuSharing sharing_;
  Duration run_limit_{};                  // the limit of runs from now on
  std::optional<proto::Tensor> input_{};  // of runs from now on, instead of rows of counting numbers
  std::vector<proto::Tensor> more_{};     // parts of the same input, behind it
  std::uint64_t keep_ = 0;  // under which number runs from now on keep their output; 0: they do not
  WorkerLimits limits_;
  transport::MemoryFile page_ = *CreateControlPage(1);
  std::unique_ptr<TaskQueue> queue_ = *TaskQueue::Create();
  std::map<std::uint64_t, proto::WorkerOutcome> outcomes_;
  std::vector<std::uint64_t> order_;
  std::unique_ptr<transport::HostRegion> host_;
  RegionPtr region_;
  std::shared_ptr<transport::LocalChannel> channel_;
  std::unique_ptr<WorkerDevice> worker_device_;
  Device* device_ = nullptr;
  DeviceLinks* links_ = nullptr;
  DeviceMemory* memory_ = nullptr;
  TensorStore* tensors_ = nullptr;
  std::unique_ptr<Residency> residency_;
  std::unique_ptr<Preparer> preparer_;
  std::unique_ptr<Runner> runner_;
};

}  // namespace troupe::gpu::test
