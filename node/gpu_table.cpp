#include "node/gpu_table.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace troupe::node {

namespace {

// What is left of `a` without `b`; nothing when `b` is larger.
Bytes Rest(Bytes a, Bytes b) {
  return a > b ? a - b : Bytes();
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

Bytes Resident::WithStates() const {
  Bytes sum = bytes;
  for (const auto& [state, size] : states) sum += size;
  return sum;
}

Bytes Gpu::Free() const {
  return Rest(memory, overhead + staying + promised);
}

const Resident* Gpu::Find(const std::string& model) const {
  const auto it = residents.find(model);
  return it == residents.end() ? nullptr : &it->second;
}

std::optional<GpuTable::Place> GpuTable::PlaceOf(const Gpu& gpu) {
  if (gpu.worker != WorkerState::kReady) return std::nullopt;
  return Place{gpu.in_flight, ~gpu.Free().count(), gpu.index};
}

void GpuTable::Move(const std::optional<Place>& before, const Gpu& gpu) {
  const std::optional<Place> after = PlaceOf(gpu);
  if (before == after) return;
  if (before && after) {
    auto node = ready_.extract(*before);
    node.value() = *after;
    ready_.insert(std::move(node));
  } else if (before) {
    ready_.erase(*before);
  } else {
    ready_.insert(*after);
  }
}

template <class Change>
void GpuTable::ChangeResident(Gpu& gpu, Resident& resident, Change change) {
  if (resident.Idle()) gpu.idle -= resident.WithStates();
  change(resident);
  if (resident.Idle()) gpu.idle += resident.WithStates();
}

void GpuTable::Add(GpuIndex index, Bytes memory, std::uint32_t device, bool assigned) {
  Gpu gpu;
  gpu.index = index;
  gpu.memory = memory;
  gpu.device = device;
  gpu.assigned = assigned;
  in_flight_[device];
  const auto [it, added] = gpus_.emplace(index, std::move(gpu));
  TROUPE_CHECK(added, "this GPU is in the table already");
  if (by_index_.size() <= index) by_index_.resize(index + 1);
  by_index_[index] = &it->second;
}

Gpu& GpuTable::Mutable(GpuIndex index) {
  TROUPE_CHECK(index < by_index_.size() && by_index_[index] != nullptr, "no such GPU");
  return *by_index_[index];
}

const Gpu& GpuTable::at(GpuIndex index) const {
  TROUPE_CHECK(index < by_index_.size() && by_index_[index] != nullptr, "no such GPU");
  return *by_index_[index];
}

const std::vector<GpuIndex>& GpuTable::Holders(const std::string& model) const {
  static const std::vector<GpuIndex> kNone;
  const auto it = holders_.find(model);
  return it == holders_.end() ? kNone : it->second;
}

std::uint32_t GpuTable::HolderCount(const std::string& model) const {
  const auto it = holders_.find(model);
  return it == holders_.end() ? 0 : static_cast<std::uint32_t>(it->second.size());
}

std::vector<std::string> GpuTable::ResidentModels() const {
  std::vector<std::string> models;
  for (const auto& [model, holders] : holders_) {
    const bool there = std::any_of(holders.begin(), holders.end(), [&, name = &model](GpuIndex gpu) {
      return at(gpu).residents.at(*name).state != ResidentState::kLoading;
    });
    if (there) models.push_back(model);
  }
  std::ranges::sort(models);
  return models;
}

std::vector<std::string> GpuTable::WithStates(const Gpu& gpu) {
  std::vector<std::string> models;
  for (const auto& [model, resident] : gpu.residents) {
    if (!resident.states.empty()) models.push_back(model);
  }
  return models;
}

bool GpuTable::AllUnfit() const {
  return std::all_of(gpus_.begin(), gpus_.end(),
                     [](const auto& entry) { return entry.second.worker == WorkerState::kUnfit; });
}

Bytes GpuTable::LargestMemory() const {
  Bytes largest;
  for (const auto& [index, gpu] : gpus_) {
    if (gpu.worker != WorkerState::kUnfit) largest = std::max(largest, gpu.memory);
  }
  return largest;
}

void GpuTable::Insert(Gpu& gpu, const std::string& model, const Resident& resident) {
  TROUPE_CHECK(gpu.residents.emplace(model, resident).second, "the model is on this GPU already");
  gpu.staying += resident.bytes;
  if (resident.Idle()) gpu.idle += resident.bytes;
  gpu.coming_models += resident.state == ResidentState::kLoading ? 1 : 0;
  std::vector<GpuIndex>& holders = holders_[model];
  holders.insert(std::upper_bound(holders.begin(), holders.end(), gpu.index), gpu.index);
}

void GpuTable::Drop(Gpu& gpu, const std::string& model) {
  const auto it = gpu.residents.find(model);
  TROUPE_CHECK(it != gpu.residents.end(), "the model is not on this GPU");
  if (it->second.state == ResidentState::kLoading) LeaveLoad(gpu, model, it->second);
  if (it->second.readers > 0) {
    // Whoever was copying from here will fail, and holds nothing here any more.
    for (auto& [index, other] : gpus_) {
      const auto reader = other.residents.find(model);
      if (reader != other.residents.end() && reader->second.source == gpu.index)
        reader->second.source = kNoGpu;
    }
  }
  gpu.staying -= it->second.WithStates();
  if (it->second.Idle()) gpu.idle -= it->second.WithStates();
  gpu.residents.erase(it);
  const auto holders = holders_.find(model);
  std::erase(holders->second, gpu.index);
  if (holders->second.empty()) holders_.erase(holders);
}

// A load ends, well or not: its source is free, or the link from the host.
void GpuTable::LeaveLoad(Gpu& gpu, const std::string& model, Resident& resident) {
  std::erase(gpu.host_loads, model);
  --gpu.coming_models;
  if (resident.source == kNoGpu) return;
  Gpu& source = Mutable(std::exchange(resident.source, kNoGpu));
  ChangeResident(source, source.residents.at(model), [](Resident& read) { --read.readers; });
}

void GpuTable::WorkerUp(const WorkerReady& ready, Time now) {
  WorkerGone(ready.gpu, WorkerState::kAbsent);
  Gpu& gpu = Mutable(ready.gpu);
  const Changing changing(*this, gpu);
  gpu.worker = WorkerState::kReady;
  gpu.memory = ready.memory;
  gpu.peer_copies = ready.peer_copies;
  gpu.assigned = ready.assigned;
  gpu.key = ready.key;
  CountKeyed();
  gpu.busy_until = gpu.idle_since = now;
  for (const ResidentReport& report : ready.resident) {
    // A report that does not add up is cut to what the plan can hold: the worker's NoFit will say the rest.
    if (gpu.Find(report.model) != nullptr || report.bytes > gpu.Free()) continue;
    Insert(gpu, report.model,
           Resident{.bytes = report.bytes, .last_use = now, .state = ResidentState::kResident});
  }
  gpu.overhead = Rest(gpu.Free(), ready.free);
  gpu.strange = std::min(ready.strange, gpu.overhead);
}

void GpuTable::FoundResident(GpuIndex index, const ResidentReport& report, Time now) {
  Gpu& gpu = Mutable(index);
  const Changing changing(*this, gpu);
  if (gpu.worker != WorkerState::kReady || gpu.Find(report.model) != nullptr) return;
  const Bytes booked = std::min(gpu.overhead, report.bytes);
  if (report.bytes - booked > gpu.Free()) return;
  gpu.overhead -= booked;
  gpu.strange -= std::min(gpu.strange, report.bytes);
  Insert(gpu, report.model,
         Resident{.bytes = report.bytes, .last_use = now, .state = ResidentState::kResident});
}

void GpuTable::WorkerGone(GpuIndex index, WorkerState state) {
  Gpu& gpu = Mutable(index);
  const Changing changing(*this, gpu);
  while (!gpu.residents.empty()) Drop(gpu, std::string(gpu.residents.begin()->first));
  gpu.evicting.clear();
  gpu.worker = state;
  gpu.overhead = gpu.strange = gpu.promised = Bytes();
  in_flight_.at(gpu.device) -= std::exchange(gpu.in_flight, 0);
  gpu.unread = 0;
  gpu.coming.reset();
  CountKeyed();
}

void GpuTable::Unread(GpuIndex index, std::int32_t change) {
  Mutable(index).unread += static_cast<std::uint32_t>(change);
}

void GpuTable::BeginEvict(GpuIndex index, const std::string& model) {
  Gpu& gpu = Mutable(index);
  const Changing changing(*this, gpu);
  const Resident* resident = gpu.Find(model);
  TROUPE_CHECK(resident != nullptr && resident->Idle() && resident->pins == 0,
               "only a resident model that nobody uses is evicted");
  Drop(gpu, model);
  ++gpu.evicting[model];
}

void GpuTable::EndEvict(GpuIndex index, const std::string& model, bool gone, Bytes bytes, Time now) {
  Gpu& gpu = Mutable(index);
  const Changing changing(*this, gpu);
  const auto it = gpu.evicting.find(model);
  if (it == gpu.evicting.end()) return;  // ordered in an earlier life of the worker
  if (--it->second == 0) gpu.evicting.erase(it);
  if (gone || gpu.Find(model) != nullptr || bytes > gpu.Free()) return;
  Insert(gpu, model, Resident{.bytes = bytes, .last_use = now, .state = ResidentState::kResident});
}

void GpuTable::BeginLoad(GpuIndex index, const std::string& model, Bytes bytes, GpuIndex source, Time now) {
  Gpu& gpu = Mutable(index);
  const Changing changing(*this, gpu);
  TROUPE_CHECK(bytes <= gpu.Free(), "a load was planned that does not fit");
  if (source == kNoGpu) {
    gpu.host_loads.push_back(model);
  } else {
    const auto from = Mutable(source).residents.find(model);
    TROUPE_CHECK(source != index && from != Mutable(source).residents.end() &&
                     from->second.state != ResidentState::kLoading,
                 "a load was planned from a GPU that does not have the model");
    ChangeResident(Mutable(source), from->second, [](Resident& read) { ++read.readers; });
  }
  Insert(gpu, model,
         Resident{.bytes = bytes, .last_use = now, .state = ResidentState::kLoading, .source = source});
}

void GpuTable::EndLoad(GpuIndex index, const std::string& model, bool loaded, Bytes device_bytes) {
  Gpu& gpu = Mutable(index);
  const Changing changing(*this, gpu);
  const auto it = gpu.residents.find(model);
  if (it == gpu.residents.end() || it->second.state != ResidentState::kLoading) return;
  if (!loaded) return Drop(gpu, model);
  Resident& resident = it->second;
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

void GpuTable::Pin(GpuIndex index, const std::string& model, Bytes activation, Duration work, Time now) {
  Gpu& gpu = Mutable(index);
  const Changing changing(*this, gpu);
  TROUPE_CHECK(activation <= gpu.Free(), "a run was planned that does not fit");
  const auto it = gpu.residents.find(model);
  TROUPE_CHECK(it != gpu.residents.end(), "a run was planned where its model is not");
  ChangeResident(gpu, it->second, [&](Resident& resident) {
    ++resident.pins;
    resident.last_use = now;
    if (resident.state == ResidentState::kResident) resident.state = ResidentState::kRunning;
  });
  gpu.promised += activation;
  ++gpu.in_flight;
  ++in_flight_.at(gpu.device);
  gpu.busy_until = std::max(gpu.busy_until, now) + work;
}

void GpuTable::Visit(GpuIndex index, Bytes bytes, Duration work, Time now) {
  Gpu& gpu = Mutable(index);
  const Changing changing(*this, gpu);
  TROUPE_CHECK(bytes <= gpu.Free(), "a run by layer was planned that does not fit");
  gpu.promised += bytes;
  ++gpu.in_flight;
  ++in_flight_.at(gpu.device);
  gpu.busy_until = std::max(gpu.busy_until, now) + work;
}

void GpuTable::Unpin(GpuIndex index, const std::string& model, bool pinned, Bytes activation, Time now) {
  Gpu& gpu = Mutable(index);
  const Changing changing(*this, gpu);
  TROUPE_CHECK(gpu.in_flight > 0, "more runs ended than began");
  gpu.promised -= activation;
  --in_flight_.at(gpu.device);
  if (--gpu.in_flight == 0) gpu.busy_until = gpu.idle_since = now;
  if (!pinned) return;
  const auto it = gpu.residents.find(model);
  TROUPE_CHECK(it != gpu.residents.end() && it->second.pins > 0, "a model in use has left the GPU");
  ChangeResident(gpu, it->second, [&](Resident& resident) {
    resident.last_use = now;
    if (--resident.pins == 0 && resident.state == ResidentState::kRunning)
      resident.state = ResidentState::kResident;
  });
}

void GpuTable::AddState(GpuIndex index, const std::string& model, const std::string& state, Bytes bytes) {
  Gpu& gpu = Mutable(index);
  const Changing changing(*this, gpu);
  const auto it = gpu.residents.find(model);
  TROUPE_CHECK(it != gpu.residents.end(), "a state was planned where its model is not");
  if (it->second.states.contains(state)) return;
  TROUPE_CHECK(bytes <= gpu.Free(), "a state was planned that does not fit");
  ChangeResident(gpu, it->second, [&](Resident& resident) { resident.states.emplace(state, bytes); });
  gpu.staying += bytes;
}

void GpuTable::Missing(GpuIndex index, const std::string& model) {
  Gpu& gpu = Mutable(index);
  const Changing changing(*this, gpu);
  const Resident* resident = gpu.Find(model);
  if (resident != nullptr && resident->pins == 0) Drop(gpu, model);
}

void GpuTable::CorrectFree(GpuIndex index, Bytes worker_free) {
  Gpu& gpu = Mutable(index);
  const Changing changing(*this, gpu);
  gpu.overhead += Rest(gpu.Free(), worker_free);
}

void GpuTable::ForgetOverhead(GpuIndex index) {
  Gpu& gpu = Mutable(index);
  const Changing changing(*this, gpu);
  gpu.overhead = gpu.strange;
}

void GpuTable::StrangerGone(GpuIndex index, Bytes bytes) {
  Gpu& gpu = Mutable(index);
  const Changing changing(*this, gpu);
  const Bytes gone = std::min(gpu.strange, bytes);
  gpu.strange -= gone;
  gpu.overhead -= gone;
}

}  // namespace troupe::node
