#include "sim/sandbox_gpu.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"

namespace troupe::sim {

namespace {

using actors::FakeGpu;
using RunMemoryOf = std::function<Bytes(const std::string& digest)>;

// What the runtimes know of the models.
struct KnownModels {
  std::shared_ptr<const ModelCatalogue> catalogue;
  RunMemoryOf run_memory;
};

class SandboxGpu final : public FakeGpu {
 public:
  SandboxGpu(const Sandbox& sandbox, GpuMechanism mechanism, KnownModels models,
             std::shared_ptr<SharedGpu> gpu, std::shared_ptr<GpuUse> use, Timer timer)
      : sandbox_(sandbox),
        mechanism_(std::move(mechanism)),
        models_(std::move(models)),
        gpu_(std::move(gpu)),
        use_(std::move(use)),
        timer_(std::move(timer)),
        pool_(sandbox.allocation == Duration()) {}
  // A runtime that ends leaves link, compute units and memory to the others.
  ~SandboxGpu() override {
    gpu_->held -= pool_.held();
    for (const auto& [digest, load] : loads_)
      if (load.ticket != 0) gpu_->link.Leave(load.ticket);
    for (const auto& [number, run] : runs_)
      if (!run.computed) gpu_->compute.Leave(run.ticket);
  }

  void Bring(const Load& load, Time now, Loaded done) override {
    TROUPE_CHECK(!loads_.contains(load.digest), "a model is brought twice");
    brought_[load.digest] = load;
    Begin(load, now, std::move(done));
  }

  void Run(const std::string& digest, std::optional<Time>, Time now, Ran done) override {
    TROUPE_CHECK(models_.catalogue->contains(digest),
                 "a simulated runtime was given a model without a profile");
    const std::uint64_t number = next_++;
    runs_[number] = {.digest = digest, .begin = now, .done = std::move(done)};
    const Duration allocation = Take(models_.run_memory(digest));
    if (brought_.contains(digest) && !loads_.contains(digest) && !there_.contains(digest))
      Return(digest, now);
    runs_[number].waits = loads_.contains(digest);
    const bool copied = !runs_[number].waits || loads_.at(digest).copied;
    if (allocation == Duration()) return Allocated(number, copied, now);
    timer_(now + allocation, [this, number, at = now + allocation] {
      const auto load = loads_.find(runs_.at(number).digest);
      Allocated(number, load == loads_.end() || load->second.copied, at);
    });
  }

  void Evict(const std::string& digest) override {
    Forget(digest);
    brought_.erase(digest);
  }

 private:
  struct Loading {
    Time begin{};
    HostLink::Ticket ticket = 0;
    Loaded done;
    bool copied = false;  // the first of it is on its way
  };
  struct Running {
    std::string digest;
    Time begin{};
    Ran done;
    HostLink::Ticket ticket = 0;
    bool allocated = false;
    bool begun = false;
    bool computed = false;
    bool waits = false;  // for the last of its weights
    Time last_weights{};
  };

  [[nodiscard]] Duration PinningOf(Bytes bytes) const {
    return FromSeconds(ToSeconds(sandbox_.pinning) * static_cast<double>(bytes.count()) / 1e6);
  }

  // What allocating takes.
  Duration Take(Bytes bytes) {
    gpu_->held -= pool_.held();
    const bool grew = pool_.Take(bytes);
    gpu_->held += pool_.held();
    return grew ? sandbox_.allocation : Duration();
  }
  void Give(Bytes bytes) {
    gpu_->held -= pool_.held();
    pool_.Give(bytes);
    gpu_->held += pool_.held();
  }

  void Begin(const Load& load, Time now, Loaded done) {
    if (mechanism_.on_bring) mechanism_.on_bring(load.digest, load.peer.has_value());
    loads_[load.digest] = {.begin = now, .ticket = 0, .done = std::move(done)};
    const Duration before = sandbox_.function_start + Take(load.bytes) + PinningOf(load.bytes);
    const Time start = now + before;
    if (before == Duration()) return Copy(load, start);
    timer_(start, [this, load, start] { Copy(load, start); });
  }

  // A model that went with its last request comes again, from the host.
  void Return(const std::string& digest, Time now) {
    Load load = brought_.at(digest);
    load.peer.reset();
    Begin(load, now, [](Time) {});
  }

  void Copy(const Load& load, Time now) {
    const Duration alone =
        TransferTime(load.bytes, load.peer ? mechanism_.peer_link(*load.peer) : mechanism_.link);
    const auto end = [this, digest = load.digest](Time at) { Brought(digest, at); };
    auto& loading = loads_.at(load.digest);
    loading.copied = true;
    if (load.peer) {
      timer_(now + alone, [end, at = now + alone] { end(at); });
    } else {
      loading.ticket = gpu_->link.Begin(alone, load.deadline, now, timer_, end);
    }
    for (auto& [number, run] : runs_)
      if (run.digest == load.digest && run.allocated && !run.begun) Compute(number, now);
  }

  void Allocated(std::uint64_t number, bool copied, Time now) {
    runs_.at(number).allocated = true;
    if (copied) Compute(number, now);
  }

  void Compute(std::uint64_t number, Time now) {
    Running& run = runs_.at(number);
    run.begun = true;
    run.ticket =
        gpu_->compute.Begin(models_.catalogue->at(run.digest).run, {}, now, timer_, [this, number](Time) {
          runs_.at(number).computed = true;
          EndIfThere(number);
        });
  }

  void Brought(const std::string& digest, Time now) {
    const auto loaded = loads_.extract(digest);
    there_.insert(digest);
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
    use_->computing += models_.catalogue->at(run.digest).run;
    Give(models_.run_memory(run.digest));
    const auto same = [&](const auto& other) { return other.second.digest == run.digest; };
    if (!sandbox_.keeps_models && std::ranges::none_of(runs_, same)) Forget(run.digest);
    run.done(run.begin, run.last_weights);
  }

  void Forget(const std::string& digest) {
    if (there_.erase(digest) == 1) Give(brought_.at(digest).bytes);
  }

  const Sandbox sandbox_;
  const GpuMechanism mechanism_;
  const KnownModels models_;
  const std::shared_ptr<SharedGpu> gpu_;
  const std::shared_ptr<GpuUse> use_;
  const Timer timer_;
  RuntimePool pool_;
  std::map<std::string, Load> brought_;  // as the node has it: until it evicts them
  std::set<std::string> there_;          // of those: models whose weights are there
  std::map<std::string, Loading> loads_;
  std::map<std::uint64_t, Running> runs_;
  std::uint64_t next_ = 1;
};

}  // namespace

bool RuntimePool::Take(Bytes bytes) {
  used_ += bytes;
  const bool grew = used_ > most_;
  most_ = std::max(most_, used_);
  return grew;
}

void RuntimePool::Give(Bytes bytes) {
  used_ -= bytes;
}

absl::Status CheckFits(const Sandbox& sandbox, const ClusterSpec& cluster) {
  const Bytes part = RuntimeMemory(sandbox, cluster.gpu_memory);
  for (const ModelSpec& model : cluster.models) {
    const Bytes whole = model.memory + RunMemory(sandbox, model);
    if (whole > part)
      return absl::InvalidArgumentError(absl::StrCat(
          "model '", model.name, "' takes ", FormatBytes(whole), ", and each of the preset's ",
          sandbox.runtimes, " runtimes has ", FormatBytes(part), " of a GPU's ",
          FormatBytes(cluster.gpu_memory), "; give the GPUs more memory, or leave the model out"));
  }
  return absl::OkStatus();
}

Bytes RunMemory(const Sandbox& sandbox, const ModelSpec& model) {
  return Bytes(static_cast<std::uint64_t>(sandbox.pool * static_cast<double>(model.activations.count())));
}

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
                                        std::shared_ptr<const ModelCatalogue> models, RunMemoryOf run_memory,
                                        std::shared_ptr<SharedGpu> gpu, std::shared_ptr<GpuUse> use,
                                        FakeGpu::Timer timer) {
  return std::make_unique<SandboxGpu>(sandbox, std::move(mechanism),
                                      KnownModels{std::move(models), std::move(run_memory)}, std::move(gpu),
                                      std::move(use), std::move(timer));
}

}  // namespace troupe::sim
