#include "node/view.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>
#include <vector>

#include "node/parts.hpp"
#include "node/runtimes/isolation.hpp"

namespace troupe::node {

namespace {

constexpr Duration kFreshShares = std::chrono::seconds(5);

std::int64_t Since(Time then, Time now) {
  return now > then ? (now - then).count() : 0;
}

// As models are shown: by the function.
template <class Shown>
void ShowState(const DeclaredState& state, Bytes bytes, Shown& shown) {
  auto& model = *shown.add_models();
  model.set_digest(state.model->digest.text());
  model.add_functions(state.name);
  model.set_state("state");
  model.set_bytes(bytes.count());
}

Bytes BytesOf(const proto::StateImage& image) {
  Bytes bytes;
  for (const auto& tensor : image.tensors())
    bytes +=
        Bytes(tensor.data().has_arena() ? tensor.data().arena().length() : tensor.data().inlined().size());
  return bytes;
}

void Add(const proto::WorkerDescription& worker, proto::WorkerDescription& sum) {
  sum.set_memory_bytes(sum.memory_bytes() + worker.memory_bytes());
  sum.set_free_bytes(sum.free_bytes() + worker.free_bytes());
  sum.set_largest_free_bytes(std::max(sum.largest_free_bytes(), worker.largest_free_bytes()));
  sum.mutable_resident()->MergeFrom(worker.resident());
  sum.mutable_prepared()->MergeFrom(worker.prepared());
  sum.set_runs(sum.runs() + worker.runs());
  sum.set_swaps(sum.swaps() + worker.swaps());
  sum.set_busy_ns(sum.busy_ns() + worker.busy_ns());
  sum.set_copy_in_bytes(sum.copy_in_bytes() + worker.copy_in_bytes());
  sum.set_copy_out_bytes(sum.copy_out_bytes() + worker.copy_out_bytes());
  sum.set_copy_in_busy_ns(sum.copy_in_busy_ns() + worker.copy_in_busy_ns());
  sum.set_copy_out_busy_ns(sum.copy_out_busy_ns() + worker.copy_out_busy_ns());
  sum.set_pool_bytes(sum.pool_bytes() + worker.pool_bytes());
  sum.set_pool_used_bytes(sum.pool_used_bytes() + worker.pool_used_bytes());
  sum.set_pool_peak_bytes(sum.pool_peak_bytes() + worker.pool_peak_bytes());
  sum.set_fragmentation(std::max(sum.fragmentation(), worker.fragmentation()));
}

}  // namespace

proto::NodeDescription View::Describe(Time now) const {
  const auto& settings = parts_.settings;
  proto::NodeDescription node;
  node.set_node(settings.name);
  *node.mutable_load() = parts_.membership.Load();
  node.set_alpha(parts_.scheduler.alpha());
  *node.mutable_adopted() = parts_.routers.served().list();
  for (std::uint32_t device = 0; device < settings.gpus.size(); ++device) {
    auto& status = *node.add_gpus();
    status.set_node(settings.name);
    *status.mutable_gpu() = parts_.runtimes.Record(device);
  }
  parts_.swaps.log().AddTo(*node.mutable_swaps());
  node.mutable_swaps()->set_no_fits(parts_.scheduler.counts().no_fits);
  AddRegion(now, *node.mutable_region());
  node.set_region_bytes(node.region().bytes());
  node.set_region_used_bytes(node.region().used_bytes());
  for (GpuIndex gpu = 0; gpu < parts_.runtimes.size(); ++gpu) {
    auto& status = *node.mutable_gpus(static_cast<int>(settings.DeviceOf(gpu)));
    status.set_restarts(status.restarts() + parts_.runtimes.Last(gpu).restarts());
    AddModels(gpu, now, status);
    AddWork(gpu, now, status);
    AddRuntime(gpu, now, status);
  }
  parts_.metering.Describe(node);
  parts_.sequences.Describe(node);
  parts_.membership.DescribeOwned(node);
  return node;
}

void View::AddFunction(const ModelNumber& copy,
                       google::protobuf::RepeatedPtrField<std::string>& functions) const {
  if (const auto* model = parts_.models.held().Find(copy))
    functions.Add(std::string(model->function.key().name()));
}

void View::AddModels(GpuIndex index, Time now, proto::GpuStatus& status) const {
  const auto& scheduler = parts_.scheduler;
  const auto& gpu = scheduler.gpus().at(index);
  status.set_queued(status.queued() + gpu.in_flight);
  status.set_promised_bytes(status.promised_bytes() + gpu.promised.count());
  status.set_overhead_bytes(status.overhead_bytes() + gpu.overhead.count());
  for (const auto& [copy, there] : scheduler.ResidentsOf(index)) {
    auto& model = *status.add_models();
    model.set_digest(copy->digest.text());
    AddFunction(copy, *model.mutable_functions());
    model.set_state(Name(there->state));
    model.set_bytes(there->bytes.count());
    model.set_runs(there->pins);
    model.set_replicas(scheduler.HolderCount(copy));
    model.set_waiting(scheduler.WaitingFor(copy));
    model.set_idle_ns(Since(there->last_use, now));
  }
  for (const auto* state : parts_.states.declared().InOrder()) {
    const auto* where = scheduler.states().Find(state->key);
    if (where != nullptr && where->CurrentAt(index)) ShowState(*state, where->bytes, status);
  }
  for (const auto& copy : scheduler.EvictingOn(index)) {
    auto& model = *status.add_models();
    model.set_digest(copy->digest.text());
    AddFunction(copy, *model.mutable_functions());
    model.set_state("evicting");
  }
}

void View::AddWork(GpuIndex gpu, Time now, proto::GpuStatus& status) const {
  for (const auto& [id, held] : parts_.requests.all()) {
    if (held.serial == 0 || held.gpu != gpu) continue;
    auto& run = *status.add_runs();
    run.set_function(held.message.function().name());
    run.set_age_ns(Since(held.dispatched, now));
    run.set_attempt(held.attempt);
    run.set_hit(held.was == ModelWas::kResident);
  }
  for (auto& record : parts_.swaps.log().Latest(gpu, now)) {
    AddFunction(parts_.names.FindModel(record.digest()), *record.mutable_functions());
    record.set_digest(std::string(DigestOf(record.digest())));
    for (auto& evicted : *record.mutable_evicted()) evicted = std::string(DigestOf(evicted));
    *status.add_swaps() = std::move(record);
  }
}

void View::AddRuntime(GpuIndex index, Time now, proto::GpuStatus& status) const {
  if (!parts_.settings.scheduler.isolated) return;
  const auto& gpu = parts_.scheduler.gpus().at(index);
  const auto& last = parts_.runtimes.Last(index);
  auto& runtime = *status.add_runtimes();
  runtime.set_runtime(index % parts_.settings.isolation.runtimes);
  const Serves serves{gpu.coming.has_value() || gpu.assigned, gpu.coming.value_or(gpu.key)};
  runtime.set_key(RuntimeName(serves, true));
  runtime.set_state(Runtimes::StateName(last.state()));
  runtime.set_memory_bytes(gpu.memory.count());
  runtime.set_pid(last.worker().pid());
  if (gpu.in_flight == 0 && gpu.worker == WorkerState::kReady)
    runtime.set_idle_ns(Since(gpu.idle_since, now));
}

void View::AddRegion(Time now, proto::HostRegionStatus& region) const {
  const auto& copies = parts_.copies.table();
  region.set_node(parts_.settings.name);
  region.set_bytes(copies.region().count());
  region.set_used_bytes(copies.used().count());
  region.set_loads(copies.counts().loads);
  region.set_drops(copies.counts().drops);
  region.set_damaged(copies.counts().damaged);
  for (const auto& [copy, entry] : copies.InOrder()) {
    auto& model = *region.add_models();
    model.set_digest(copy->digest.text());
    AddFunction(copy, *model.mutable_functions());
    model.set_state(Name(entry->state));
    model.set_bytes(entry->bytes.count());
    model.set_readers(entry->readers);
    model.set_idle_ns(Since(entry->last_use, now));
    if (!entry->last_error.ok()) model.set_problem(std::string(entry->last_error.message()));
  }
  for (const auto* state : parts_.states.declared().InOrder())
    if (const auto image = parts_.states.ImageOf(state->key)) ShowState(*state, BytesOf(*image), region);
}

// At least half a second old: an operator who asks more often is told the same again.
void View::AddShares(GpuIndex gpu, const proto::WorkerDescription& worker, proto::GpuStatus& status,
                     Time now) {
  auto& seen = seen_[gpu];
  const auto link_ns = worker.copy_in_busy_ns();
  const auto share = [&](std::int64_t ns, std::int64_t before) {
    // A new worker counts from zero again.
    return std::clamp(
        static_cast<double>(ns >= before ? ns - before : ns) / static_cast<double>(Since(seen.at, now)), 0.0,
        1.0);
  };
  if (Since(seen.at, now) >= Duration(std::chrono::milliseconds(500)).count()) {
    seen = {.at = now,
            .busy_ns = worker.busy_ns(),
            .link_ns = link_ns,
            .busy_share = share(worker.busy_ns(), seen.busy_ns),
            .link_share = share(link_ns, seen.link_ns)};
  }
  status.set_busy_share(std::min(1.0, status.busy_share() + seen.busy_share));
  status.set_link_share(std::min(1.0, status.link_share() + seen.link_share));
}

double View::BusyShare(Time now) const {
  const auto devices = parts_.settings.gpus.size();
  std::vector<double> shares(devices);
  for (GpuIndex gpu = 0; gpu < seen_.size(); ++gpu) {
    if (Since(seen_[gpu].at, now) > kFreshShares.count()) continue;
    auto& share = shares[parts_.settings.DeviceOf(gpu)];
    share = std::min(1.0, share + seen_[gpu].busy_share);
  }
  return devices == 0 ? 0 : std::accumulate(shares.begin(), shares.end(), 0.0) / static_cast<double>(devices);
}

void View::AddWorker(GpuIndex gpu, proto::WorkerDescription& worker, proto::GpuStatus& status, Time now) {
  // The worker knows models by their packed digests; people and the registry by the canonical ones.
  for (auto& resident : *worker.mutable_resident()) {
    const auto copy =
        parts_.models.held().ByPackedDigest(resident.digest(), parts_.scheduler.gpus().at(gpu).key);
    if (copy) resident.set_digest(copy->digest.text());
  }
  AddShares(gpu, worker, status, now);
  if (status.has_worker()) return Add(worker, *status.mutable_worker());
  *status.mutable_worker() = std::move(worker);
}

}  // namespace troupe::node
