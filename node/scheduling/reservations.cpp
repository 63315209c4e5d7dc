#include "node/scheduling/reservations.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "node/scheduling/scheduler_parts.hpp"

namespace troupe::node {

// The choice names another GPU, or the host; a model from the host may be sent on by a GPU that loads it.
void Reservations::Load(const RequestLook& look, RequestEntry& entry, GpuChoice& choice, Time now) {
  const Gpu& gpu = tables_.gpus.at(choice.gpu);
  entry.source = choice.peer == kNoGpu ? SwapSource::kHost : SwapSource::kPeer;
  if (choice.peer == kNoGpu && (choice.peer = parts_.chooser.SenderFor(look, gpu)) != kNoGpu) {
    entry.source = SwapSource::kBroadcast;
    tables_.broadcasts.Join({choice.peer, tables_.gpus.at(choice.peer).device}, {gpu.index, gpu.device},
                            entry.model);
  }
  const Duration load = tables_.times.LoadTimeOn(look.model, gpu.kind);
  tables_.gpus.BeginLoad(choice.gpu, entry.model, look.model.weights, choice.peer, load, now);
  ++parts_.counts.swaps;
  parts_.counts.peer_swaps += entry.source == SwapSource::kPeer ? 1 : 0;
  parts_.counts.broadcasts += entry.source == SwapSource::kBroadcast ? 1 : 0;
  if (tables_.rules.places.MoreForHits()) parts_.waiting.ActivateResidents(gpu);
  if (entry.source == SwapSource::kHost) tables_.pressure.on_links.Add(load, now, tables_.pressure.links);
}

// A run on a part of the SMs keeps others from that part only.
void Reservations::Claim(RequestEntry& entry, Bytes activation, Duration work) const {
  const std::uint32_t percent = entry.request.sm_percent;
  entry.claim = {activation, percent == 100 ? work : work * percent / 100, tables_.PlaceOf(entry)};
}

// Beside its model, which is there or comes from where the choice says.
void Reservations::Place(const RequestLook& look, RequestEntry& entry, GpuChoice& choice,
                         const std::vector<ModelId>& victims, const Company& company, Time now) {
  const Gpu& gpu = tables_.gpus.at(choice.gpu);
  const Resident* const resident = gpu.Find(entry.model);
  const bool has_model = resident != nullptr;
  entry.hit = has_model && resident->state != ResidentState::kLoading;
  entry.source = SwapSource::kResident;
  for (const ModelId victim : victims) Evict(choice.gpu, victim);
  if (tables_.Need(look, gpu.Find(entry.model)) > gpu.Free()) tables_.gpus.ForgetOverhead(choice.gpu);
  Duration work = company.members.empty() ? tables_.times.RunTimeOn(entry, gpu.kind) : company.run;
  parts_.prefetcher.NoteRun(work, now);
  if (tables_.times.NeedsFast(entry))
    tables_.pressure.on_fast.Add(work, now, static_cast<std::uint32_t>(tables_.gpus.gpus().size()));
  if (!has_model) {
    Load(look, entry, choice, now);
    const auto link = entry.source != SwapSource::kPeer
                          ? std::nullopt
                          : tables_.rules.topology.PeerLink(tables_.gpus.at(choice.peer).device, gpu.device);
    work += link ? TransferTime(look.model.weights, *link) : tables_.times.LoadTimeOn(look.model, gpu.kind);
  } else {
    parts_.counts.hits += entry.hit && !entry.request.trial ? 1 : 0;
  }
  parts_.states.Place(entry, choice.gpu, now);
  Claim(entry, look.model.activation + company.room, work);
  tables_.gpus.Pin(choice.gpu, entry.model, entry.claim, now);
  entry.pinned = true;
}

Dispatch Reservations::Reserve(RequestEntry& entry, GpuChoice choice, Time now) {
  const GpuIndex index = choice.gpu;
  const RequestLook look = tables_.LookFor(entry);
  const Bytes need = tables_.Need(look, tables_.gpus.at(index).Find(entry.model));
  const std::vector<StateNumber> leaving = parts_.victims.PlanStates(entry, need, tables_.gpus.at(index));
  for (const StateNumber& state : leaving) parts_.states.SendAway(state);
  std::vector<ModelId> victims = parts_.victims.Plan(entry.model, need, tables_.gpus.at(index), now);
  entry.alone = tables_.gpus.at(index).in_flight == 0;
  entry.brings_state = false;
  Company company;
  if (choice.peer == kNoGpu && parts_.victims.PassesThrough(entry, tables_.gpus.at(index), victims)) {
    victims.clear();
    PassThrough(entry, index, now);
  } else {
    company = parts_.batches.CompanyOf(entry, tables_.gpus.at(index), need, now);
    Place(look, entry, choice, victims, company, now);
  }
  Leave(entry, index, now);
  for (RequestEntry* const member : company.members) {
    Leave(*member, index, now);
    member->leader = &entry;
    member->hit = entry.hit;
    member->source = entry.source;
    member->pinned = member->alone = member->brings_state = false;
    parts_.counts.hits += entry.hit ? 1 : 0;
  }
  parts_.counts.joined += company.members.size();
  Dispatch dispatch = Order(entry, choice, victims, company);
  dispatch.leaving = leaving;
  return dispatch;
}

void Reservations::Leave(RequestEntry& entry, GpuIndex gpu, Time now) {
  entry.gpu = gpu;
  entry.passed = 0;
  entry.queued = now - entry.arrival;
  entry.company_until = Time::min();
  parts_.counts.retried += entry.attempts > 0 ? 1 : 0;
  ++entry.attempts;
  parts_.holds.Release(entry);
  parts_.waiting.Dequeue(entry);
  if (!tables_.rules.by_gpu) parts_.waiting.GiveTurn(entry);
  tables_.requests.pipelines[gpu].push_back(&entry);
  FunctionEntry& function = parts_.requests.FunctionOf(entry);
  ++function.dispatched;
  function.gpu = gpu;
}

// When its run has to begin to be in time: what comes for it is wanted by then.
Time Reservations::BeginBy(const RequestEntry& entry, const Company& company) const {
  if (entry.request.deadline == Time::max()) return Time::max();
  return entry.request.deadline -
         std::max(tables_.times.RunTimeOn(entry, tables_.gpus.at(entry.gpu).kind), company.run);
}

// What the node has to know to carry the decision out.
Dispatch Reservations::Order(const RequestEntry& entry, const GpuChoice& choice,
                             const std::vector<ModelId>& victims, const Company& company) const {
  // What is late yields on the links, too.
  const auto begin_by = [&](const RequestEntry& request) {
    const bool late = tables_.requests.late && (IsLate(request.key) || request.latest == Time::max());
    return late ? Time::max() : BeginBy(request, company);
  };
  Dispatch dispatch{.request = entry.request.id,
                    .model = entry.request.model,
                    .gpu = choice.gpu,
                    .source = entry.source,
                    .peer = entry.source == SwapSource::kResident ? kNoGpu : choice.peer,
                    .attempt = entry.attempts,
                    .queued = entry.queued,
                    .deadline = begin_by(entry),
                    .expiry = entry.request.expiry,
                    .bring_state = entry.brings_state};
  for (const ModelId victim : victims) dispatch.victims.push_back(tables_.models.NameOf(victim));
  for (const RequestEntry* const member : company.members) {
    dispatch.members.push_back(member->request.id);
    dispatch.deadline = std::min(dispatch.deadline, begin_by(*member));
    // The run is worth while as long as one of its requests waits for it.
    dispatch.expiry = std::max(dispatch.expiry, member->request.expiry);
  }
  if (tables_.states.Find(entry.request.state) != nullptr) dispatch.state = entry.request.state;
  return dispatch;
}

void Reservations::Evict(GpuIndex gpu, ModelId model) {
  ++parts_.counts.evictions;
  const Gpu& from = tables_.gpus.at(gpu);
  const Bytes bytes = from.Find(model)->bytes;
  if (tables_.gpus.holders().Count(model) > 1) {
    ++parts_.counts.evicted_replicas;
  } else {
    ++(tables_.times.costs.Heavy(tables_.models[model].cost, bytes, from.kind) ? parts_.counts.evicted_heavy
                                                                               : parts_.counts.evicted_light);
  }
  tables_.gpus.BeginEvict(gpu, model);
  tables_.states.BeginEvict(gpu, model);
  if (tables_.models[model].parked == gpu) parts_.waiting.Activate(model);
  parts_.prefetcher.MayWantCopy(model);
}

void Reservations::PassThrough(RequestEntry& entry, GpuIndex gpu, Time now) {
  const ModelEntry& model = tables_.models[entry.model];
  const KindId kind = tables_.gpus.at(gpu).kind;
  entry.source = SwapSource::kLayers;
  entry.hit = entry.pinned = false;
  ++parts_.counts.by_layer;
  Claim(entry, VictimPlanner::WindowOf(model.weights) + model.activation,
        std::max(tables_.times.RunTimeOn(entry, kind), tables_.times.costs.LoadTime(model.weights, kind)));
  tables_.gpus.Visit(gpu, entry.claim, now);
}

void Reservations::Prefetch(ModelId id, const PrefetchPlan& plan, Time begin_by, Time now) {
  const ModelEntry& model = tables_.models[id];
  Dispatch ahead{.model = tables_.models.NameOf(id),
                 .gpu = plan.gpu,
                 .source = SwapSource::kHost,
                 .deadline = begin_by,
                 .ahead = true};
  for (const ModelId victim : plan.victims) {
    ahead.victims.push_back(tables_.models.NameOf(victim));
    Evict(plan.gpu, victim);
  }
  const Duration load = tables_.times.LoadTimeOn(model, tables_.gpus.at(plan.gpu).kind);
  tables_.gpus.BeginLoad(plan.gpu, id, model.weights, kNoGpu, load, now);
  if (tables_.rules.limits.LoadsOccupy()) tables_.gpus.Occupy(plan.gpu, id, load, now);
  ++parts_.counts.ahead;
  parts_.decision.prefetches.push_back(std::move(ahead));
}

}  // namespace troupe::node
