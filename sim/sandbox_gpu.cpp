#include "sim/sandbox_gpu.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.hpp"

namespace troupe::sim {

namespace {

using actors::FakeGpu;

class SandboxGpu final : public FakeGpu {
 public:
  SandboxGpu(const Sandbox& sandbox, GpuMechanism mechanism, std::shared_ptr<const ModelCatalogue> models,
             std::shared_ptr<SharedGpu> gpu, std::shared_ptr<GpuUse> use, Timer timer)
      : sandbox_(sandbox),
        mechanism_(std::move(mechanism)),
        models_(std::move(models)),
        gpu_(std::move(gpu)),
        use_(std::move(use)),
        timer_(std::move(timer)) {}
  // A runtime that ends leaves link and compute units to the others.
  ~SandboxGpu() override {
    for (const auto& [digest, load] : loads_)
      if (load.ticket != 0) gpu_->link.Leave(load.ticket);
    for (const auto& [number, run] : runs_)
      if (!run.computed) gpu_->compute.Leave(run.ticket);
  }

  void Bring(const Load& load, Time now, Loaded done) override {
    if (mechanism_.on_bring) mechanism_.on_bring(load.digest, load.peer.has_value());
    TROUPE_CHECK(!loads_.contains(load.digest), "a model is brought twice");
    loads_[load.digest] = {.begin = now, .ticket = 0, .done = std::move(done)};
    const Duration before = sandbox_.function_start + PinningOf(load.bytes);
    const Time start = now + before;
    if (before == Duration()) return Copy(load, start);
    timer_(start, [this, load, start] { Copy(load, start); });
  }

  void Run(const std::string& digest, Time now, Ran done) override {
    const auto model = models_->find(digest);
    TROUPE_CHECK(model != models_->end(), "a simulated runtime was given a model without a profile");
    const std::uint64_t number = next_++;
    auto& run = runs_[number] = {.digest = digest, .begin = now, .done = std::move(done)};
    run.waits = loads_.contains(digest);
    run.ticket = gpu_->compute.Begin(model->second.run, {}, now, timer_, [this, number](Time) {
      runs_.at(number).computed = true;
      EndIfThere(number);
    });
  }

 private:
  struct Loading {
    Time begin{};
    HostLink::Ticket ticket = 0;
    Loaded done;
  };
  struct Running {
    std::string digest;
    Time begin{};
    Ran done;
    HostLink::Ticket ticket = 0;
    bool computed = false;
    bool waits = false;  // for its weights
    Time last_weights{};
  };

  [[nodiscard]] Duration PinningOf(Bytes bytes) const {
    return FromSeconds(ToSeconds(sandbox_.pinning) * static_cast<double>(bytes.count()) / 1e6);
  }

  void Copy(const Load& load, Time now) {
    const Duration alone =
        TransferTime(load.bytes, load.peer ? mechanism_.peer_link(*load.peer) : mechanism_.link);
    const auto end = [this, digest = load.digest](Time at) { Brought(digest, at); };
    if (load.peer) {
      timer_(now + alone, [end, at = now + alone] { end(at); });
    } else {
      loads_.at(load.digest).ticket = gpu_->link.Begin(alone, load.deadline, now, timer_, end);
    }
  }

  void Brought(const std::string& digest, Time now) {
    const auto loaded = loads_.extract(digest);
    use_->loading += now - loaded.mapped().begin;
    std::vector<std::uint64_t> waited;
    for (auto& [number, run] : runs_) {
      if (run.digest != digest || !run.waits) continue;
      run.waits = false;
      run.last_weights = now;
      waited.push_back(number);
    }
    loaded.mapped().done(loaded.mapped().begin);
    for (const auto number : waited) EndIfThere(number);
  }

  void EndIfThere(std::uint64_t number) {
    const auto it = runs_.find(number);
    if (it == runs_.end() || !it->second.computed || it->second.waits) return;
    const auto ended = runs_.extract(it);
    const Running& run = ended.mapped();
    use_->computing += models_->at(run.digest).run;
    run.done(run.begin, run.last_weights);
  }

  const Sandbox sandbox_;
  const GpuMechanism mechanism_;
  const std::shared_ptr<const ModelCatalogue> models_;
  const std::shared_ptr<SharedGpu> gpu_;
  const std::shared_ptr<GpuUse> use_;
  const Timer timer_;
  std::map<std::string, Loading> loads_;
  std::map<std::uint64_t, Running> runs_;
  std::uint64_t next_ = 1;
};

}  // namespace

Bytes RuntimeMemory(const Sandbox& sandbox, Bytes gpu) {
  const Bytes runtimes = sandbox.footprint * sandbox.runtimes;
  return runtimes < gpu ? Bytes((gpu.count() - runtimes.count()) / sandbox.runtimes) : Bytes();
}

void PutInSandbox(const Sandbox& sandbox, Bytes gpu, World::NodePlan& plan) {
  auto& options = plan.options;
  options.isolation.mode = sandbox.isolation;
  options.isolation.runtimes = sandbox.runtimes;
  options.scheduler.isolated = true;
  options.scheduler.concurrency = sandbox.concurrency;
  options.credits_per_gpu = std::max<std::uint64_t>(options.credits_per_gpu, 2 * sandbox.concurrency);
  const Bytes memory = RuntimeMemory(sandbox, gpu) * sandbox.runtimes;
  for (auto& setup : options.gpus) setup.memory = memory;
  plan.worker.memory = memory;
  plan.memories.clear();
  plan.worker.start = sandbox.start;
}

std::unique_ptr<FakeGpu> MakeSandboxGpu(const Sandbox& sandbox, GpuMechanism mechanism,
                                        std::shared_ptr<const ModelCatalogue> models,
                                        std::shared_ptr<SharedGpu> gpu, std::shared_ptr<GpuUse> use,
                                        FakeGpu::Timer timer) {
  return std::make_unique<SandboxGpu>(sandbox, std::move(mechanism), std::move(models), std::move(gpu),
                                      std::move(use), std::move(timer));
}

}  // namespace troupe::sim
