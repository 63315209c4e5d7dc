#include "node/scheduling/gpu_table.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace troupe::node {

namespace {

// What is left of `a` without `b`; nothing when `b` is larger.
Bytes Rest(Bytes a, Bytes b) {
  return a > b ? a - b : Bytes();
}

// Applies `change` to a resident, and counts it among the idle ones or not.
template <class Change>
void ChangeResident(Gpu& gpu, Resident& resident, Change change) {
  if (resident.Idle()) gpu.idle -= resident.WithStates();
  change(resident);
  if (resident.Idle()) gpu.idle += resident.WithStates();
}

// Room in the plan for what is on the device: a run that found no room meanwhile has told of it, as overhead. False: there
// is none.
bool MakeKnown(Gpu& gpu, Bytes bytes) {
  const Bytes told = Rest(bytes, gpu.Free());
  if (told > Rest(gpu.overhead, gpu.strange)) return false;
  gpu.overhead -= told;
  return true;
}

}  // namespace

const char* Name(ResidentState state) {
  switch (state) {
    case ResidentState::kLoading:
      return "loading";
    case ResidentState::kResident:
      return "resident";
    case ResidentState::kRunning:
      return "running";
  }
  return "unknown";
}

void GpuTable::Add(GpuIndex index, Bytes memory, std::uint32_t device, bool assigned, KindId kind) {
  Gpu gpu;
  gpu.index = index;
  gpu.memory = memory;
  gpu.device = device;
  gpu.assigned = assigned;
  gpu.kind = kind;
  const auto [it, added] = gpus_.emplace(index, std::move(gpu));
  TROUPE_CHECK(added, "this GPU is in the table already");
  if (by_index_.size() <= index) by_index_.resize(index + 1);
  by_index_[index] = &it->second;
  loads_.Add(index, device);
}

Gpu& GpuTable::Found(GpuIndex index) {
  TROUPE_CHECK(index < by_index_.size() && by_index_[index] != nullptr, "no such GPU");
  return *by_index_[index];
}

Gpu& GpuTable::Changing(GpuIndex index) {
  Gpu& gpu = Found(index);
  loads_.Changed(index);
  return gpu;
}

void GpuTable::Insert(Gpu& gpu, ModelId model, const Resident& resident) {
  TROUPE_CHECK(gpu.residents.emplace(model, resident).second, "the model is on this GPU already");
  gpu.staying += resident.bytes;
  if (resident.Idle()) gpu.idle += resident.bytes;
  gpu.coming_models += resident.state == ResidentState::kLoading ? 1 : 0;
  holders_.Enter(model, gpu.index);
}

void GpuTable::Drop(Gpu& gpu, ModelId model) {
  const auto it = gpu.residents.find(model);
  TROUPE_CHECK(it != gpu.residents.end(), "the model is not on this GPU");
  if (it->second.state == ResidentState::kLoading) LeaveLoad(gpu, model, it->second);
  if (it->second.readers > 0) {
    // A GPU that was copying from here will fail, and holds nothing here any more.
    for (const GpuIndex holder : Holders(model)) {
      Resident& reader = Found(holder).residents.at(model);
      if (reader.source == gpu.index) reader.source = kNoGpu;
    }
  }
  gpu.staying -= it->second.WithStates();
  if (it->second.Idle()) gpu.idle -= it->second.WithStates();
  gpu.residents.erase(it);
  holders_.Leave(model, gpu.index);
}

// A load ends, well or not: its source is free, or the link from the host.
void GpuTable::LeaveLoad(Gpu& gpu, ModelId model, Resident& resident) {
  std::erase(gpu.host_loads, model);
  --gpu.coming_models;
  if (resident.source == kNoGpu) return;
  Gpu& source = Found(std::exchange(resident.source, kNoGpu));
  ChangeResident(source, source.residents.at(model), [](Resident& read) { --read.readers; });
}

template <class Change>
void GpuTable::ChangeServed(Gpu& gpu, Change change) {
  const auto keyed = [&] { return !gpu.key.empty() || (gpu.coming && !gpu.coming->empty()) ? 1u : 0u; };
  keyed_ -= keyed();
  change(gpu);
  keyed_ += keyed();
}

void GpuTable::WorkerUp(const WorkerReady& ready, absl::Span<const ModelId> resident, Time now) {
  WorkerGone(ready.gpu, WorkerState::kAbsent);
  Gpu& gpu = Changing(ready.gpu);
  loads_.Set(gpu, WorkerState::kReady, 0, 0);
  gpu.ready_since = now;
  gpu.memory = ready.memory;
  gpu.peer_copies = ready.peer_copies;
  gpu.broadcasts = ready.broadcasts;
  gpu.assigned = ready.assigned;
  ChangeServed(gpu, [&](Gpu& changed) { changed.key = ready.key; });
  gpu.idle_since = now;
  for (std::size_t i = 0; i < resident.size(); ++i) {
    // A report that does not add up is cut to what the plan can hold: the worker's NoFit will say the rest.
    const Bytes bytes = ready.resident[i].bytes;
    if (gpu.Find(resident[i]) != nullptr || bytes > gpu.Free()) continue;
    Insert(gpu, resident[i], Resident{.bytes = bytes, .last_use = now, .state = ResidentState::kResident});
  }
  gpu.overhead = Rest(gpu.Free(), ready.free);
  gpu.strange = std::min(ready.strange, gpu.overhead);
  gpu.found_states = ready.found_states;
}

void GpuTable::FoundResident(GpuIndex index, ModelId model, Bytes bytes, Time now) {
  Gpu& gpu = Changing(index);
  if (gpu.worker != WorkerState::kReady || gpu.Find(model) != nullptr) return;
  const Bytes booked = std::min(gpu.overhead, bytes);
  if (bytes - booked > gpu.Free()) return;
  gpu.overhead -= booked;
  gpu.strange -= std::min(gpu.strange, bytes);
  Insert(gpu, model, Resident{.bytes = bytes, .last_use = now, .state = ResidentState::kResident});
}

void GpuTable::WorkerGone(GpuIndex index, WorkerState state) {
  Gpu& gpu = Changing(index);
  while (!gpu.residents.empty()) Drop(gpu, gpu.residents.begin()->first);
  for (const auto& [model, orders] : gpu.evicting) holders_.EndEvict(model);
  gpu.evicting.clear();
  loads_.Set(gpu, state, 0, 0);
  gpu.overhead = gpu.strange = gpu.promised = Bytes();
  gpu.unread = 0;
  gpu.found_states = false;
  gpu.work = gpu.bringing = {};
  ChangeServed(gpu, [](Gpu& changed) { changed.coming.reset(); });
}

void GpuTable::BeginAssign(GpuIndex index, std::optional<std::string> key) {
  TROUPE_CHECK(TakeableWithLoss(at(index)), "a runtime in use is taken away");
  WorkerGone(index, WorkerState::kAbsent);
  ChangeServed(Found(index), [&](Gpu& changed) { changed.coming = std::move(key); });
}

void GpuTable::Unread(GpuIndex index, std::int32_t change) {
  Found(index).unread += static_cast<std::uint32_t>(change);
}

void GpuTable::BeginEvict(GpuIndex index, ModelId model) {
  Gpu& gpu = Changing(index);
  const Resident* resident = gpu.Find(model);
  TROUPE_CHECK(resident != nullptr && resident->Idle() && resident->pins == 0,
               "only a resident model without users is evicted");
  const std::uint32_t failures = resident->stay.failures();
  Drop(gpu, model);
  if (gpu.evicting[model].open++ > 0) return;
  gpu.evicting[model].failures = failures;
  holders_.BeginEvict(model);
}

void GpuTable::EndEvict(GpuIndex index, ModelId model, bool gone, Bytes bytes, Time now) {
  Gpu& gpu = Changing(index);
  const auto it = gpu.evicting.find(model);
  if (it == gpu.evicting.end()) return;  // ordered in an earlier life of the worker
  const std::uint32_t failures = it->second.failures + 1;
  if (--it->second.open == 0) {
    gpu.evicting.erase(it);
    holders_.EndEvict(model);
  }
  if (gone || gpu.Find(model) != nullptr) return;
  if (!MakeKnown(gpu, bytes)) return;
  Resident kept{.bytes = bytes, .last_use = now, .state = ResidentState::kResident};
  kept.stay.Begin(failures, now);
  next_stay_end_ = std::min(next_stay_end_, kept.stay.until());
  Insert(gpu, model, kept);
}

std::vector<GpuTable::Stayed> GpuTable::EndStays(Time now, ModelId forgotten) {
  std::vector<Stayed> ended;
  if (now < next_stay_end_ && (forgotten == kNoModel || next_stay_end_ == Time::max())) return ended;
  next_stay_end_ = Time::max();
  for (auto& [index, gpu] : gpus_) {
    for (auto& [model, resident] : gpu.residents) {
      if (resident.stay.over()) continue;
      if (resident.stay.until() > now && model != forgotten) {
        next_stay_end_ = std::min(next_stay_end_, resident.stay.until());
        continue;
      }
      ChangeResident(Changing(index), resident, [](Resident& there) { there.stay.End(); });
      ended.push_back({index, model});
    }
  }
  std::ranges::sort(ended, {}, [](const Stayed& stayed) { return std::pair(stayed.gpu, stayed.model); });
  return ended;
}

void GpuTable::BeginLoad(GpuIndex index, ModelId model, Bytes bytes, GpuIndex source, Duration load,
                         Time now) {
  Gpu& gpu = Changing(index);
  TROUPE_CHECK(bytes <= gpu.Free(), "a load was planned that does not fit");
  if (source == kNoGpu) {
    gpu.host_loads.push_back(model);
    gpu.bringing.Add(load, now);
  } else {
    const auto from = Found(source).residents.find(model);
    TROUPE_CHECK(source != index && from != Found(source).residents.end() &&
                     (from->second.state != ResidentState::kLoading || from->second.source == kNoGpu),
                 "a load was planned from a GPU that does not have the model");
    ChangeResident(Found(source), from->second, [](Resident& read) { ++read.readers; });
  }
  Insert(
      gpu, model,
      Resident{
          .bytes = bytes, .last_use = now, .state = ResidentState::kLoading, .load = load, .source = source});
}

void GpuTable::EndLoad(GpuIndex index, ModelId model, bool loaded, Bytes device_bytes, Time now) {
  Gpu& gpu = Changing(index);
  const auto it = gpu.residents.find(model);
  if (it == gpu.residents.end() || it->second.state != ResidentState::kLoading) return;
  Resident& resident = it->second;
  if (std::ranges::find(gpu.host_loads, model) != gpu.host_loads.end()) gpu.bringing.Done(resident.load, now);
  if (resident.occupies > Duration()) gpu.work.Done(std::exchange(resident.occupies, {}), now);
  if (!loaded) return Drop(gpu, model);
  LeaveLoad(gpu, model, resident);
  ChangeResident(gpu, resident, [&](Resident& there) {
    there.state = there.pins > 0 ? ResidentState::kRunning : ResidentState::kResident;
    if (device_bytes == Bytes()) return;
    // The device's own number, as far as the plan can hold it.
    const Bytes room = there.bytes + gpu.Free();
    gpu.staying -= there.bytes;
    there.bytes = std::min(device_bytes, room);
    gpu.staying += there.bytes;
  });
}

void GpuTable::Occupy(GpuIndex index, ModelId model, Duration work, Time now) {
  if (work <= Duration()) return;
  Gpu& gpu = Changing(index);
  gpu.work.Add(work, now);
  gpu.residents.at(model).occupies = work;
}

void GpuTable::Pin(GpuIndex index, ModelId model, const RunClaim& claim, Time now) {
  Gpu& gpu = Changing(index);
  TROUPE_CHECK(claim.activation <= gpu.Free(), "a run was planned that does not fit");
  const auto it = gpu.residents.find(model);
  TROUPE_CHECK(it != gpu.residents.end(), "a run was planned where its model is not");
  ChangeResident(gpu, it->second, [&](Resident& resident) {
    ++resident.pins;
    resident.last_use = now;
    if (resident.state == ResidentState::kResident) resident.state = ResidentState::kRunning;
  });
  Claim(gpu, claim, now);
}

void GpuTable::Visit(GpuIndex index, const RunClaim& claim, Time now) {
  Gpu& gpu = Changing(index);
  TROUPE_CHECK(claim.activation <= gpu.Free(), "a run by layer was planned that does not fit");
  Claim(gpu, claim, now);
}

void GpuTable::Claim(Gpu& gpu, const RunClaim& claim, Time now) {
  gpu.promised += claim.activation;
  loads_.Set(gpu, gpu.worker, gpu.in_flight + 1, gpu.taken + claim.percent);
  gpu.work.Add(claim.work, now);
}

void GpuTable::Unpin(GpuIndex index, ModelId model, bool pinned, const RunClaim& claim, Time now) {
  Gpu& gpu = Changing(index);
  TROUPE_CHECK(gpu.in_flight > 0, "more runs ended than began");
  gpu.promised -= claim.activation;
  loads_.Set(gpu, gpu.worker, gpu.in_flight - 1, gpu.taken - claim.percent);
  gpu.work.Done(claim.work, now);
  if (gpu.in_flight == 0) gpu.idle_since = now;
  if (!pinned) return;
  const auto it = gpu.residents.find(model);
  TROUPE_CHECK(it != gpu.residents.end() && it->second.pins > 0, "a model in use has left the GPU");
  ChangeResident(gpu, it->second, [&](Resident& resident) {
    resident.last_use = now;
    if (--resident.pins == 0 && resident.state == ResidentState::kRunning)
      resident.state = ResidentState::kResident;
  });
  if (it->second.pins == 0 && it->second.missing) Drop(gpu, model);
}

bool GpuTable::AddState(GpuIndex index, ModelId model, const StateNumber& state, Bytes bytes, bool stayed) {
  Gpu& gpu = Changing(index);
  const auto it = gpu.residents.find(model);
  TROUPE_CHECK(stayed || it != gpu.residents.end(), "a state was planned where its model is not");
  if (it == gpu.residents.end() || it->second.states.contains(state)) return false;
  if (stayed && !MakeKnown(gpu, bytes)) return false;
  TROUPE_CHECK(bytes <= gpu.Free(), "a state was planned that does not fit");
  ChangeResident(gpu, it->second, [&](Resident& resident) {
    resident.states.emplace(state, bytes);
    resident.state_bytes += bytes;
  });
  gpu.staying += bytes;
  return true;
}

void GpuTable::RemoveState(GpuIndex index, ModelId model, const StateNumber& state) {
  Gpu& gpu = Changing(index);
  const auto it = gpu.residents.find(model);
  if (it == gpu.residents.end()) return;
  const auto there = it->second.states.find(state);
  if (there == it->second.states.end()) return;
  const Bytes bytes = there->second;
  ChangeResident(gpu, it->second, [&](Resident& resident) {
    resident.states.erase(there);
    resident.state_bytes -= bytes;
  });
  gpu.staying -= bytes;
}

void GpuTable::Missing(GpuIndex index, ModelId model) {
  Gpu& gpu = Changing(index);
  const auto it = gpu.residents.find(model);
  if (it == gpu.residents.end()) return;
  if (it->second.pins == 0) return Drop(gpu, model);
  it->second.missing = it->second.state != ResidentState::kLoading;
}

void GpuTable::CorrectFree(GpuIndex index, Bytes worker_free) {
  Gpu& gpu = Changing(index);
  gpu.overhead += Rest(gpu.Free(), worker_free);
}

void GpuTable::ForgetOverhead(GpuIndex index) {
  Gpu& gpu = Changing(index);
  gpu.overhead = gpu.strange;
}

void GpuTable::OrphanGone(GpuIndex index, Bytes bytes) {
  Gpu& gpu = Changing(index);
  const Bytes gone = std::min(gpu.strange, bytes);
  gpu.strange -= gone;
  gpu.overhead -= gone;
}

}  // namespace troupe::node
