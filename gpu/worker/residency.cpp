#include "gpu/worker/residency.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/status.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu {

proto::WorkerOutcome NoFitOutcome(const DeviceMemory& memory) {
  const MemoryUse use = memory.memory();
  proto::WorkerOutcome outcome;
  outcome.mutable_no_fit()->set_free(use.free.count());
  outcome.mutable_no_fit()->set_largest(use.largest.count());
  return outcome;
}

Residency::Residency(DeviceMemory& memory, TaskQueue& queue, DeviceLinks& links, const WorkerLimits& limits,
                     BroadcastHandler::Setup broadcasts, std::shared_ptr<WeightRecord> record)
    : memory_(memory),
      queue_(queue),
      links_(links),
      limits_(limits),
      room_(memory, table_),
      states_(memory),
      sources_{
          KeptWeights(memory, std::move(record)), WeightChecks(memory.device()), PeerClient(memory.device()),
          BroadcastHandler(
              memory.device(),
              {std::move(broadcasts.socket), links.curve().elbow, std::move(broadcasts.refusals)}, limits)} {
  table_.Watch([this](const std::string& digest, const std::optional<DeviceRange>& whole) {
    sources_.kept.Note(digest, whole);
  });
}

// What still comes in calls back.
Residency::~Residency() {
  sources_.checks.Close();
  links_.Close();
}

void Residency::SwapIn(const HostModel& host, std::optional<Time> deadline, Reply reply,
                       std::optional<PinnedSource> source, std::uint64_t address,
                       const std::optional<BroadcastPart>& part) {
  const bool sends = part && part->sends();
  switch (table_.StateOf(host.digest)) {
    case ModelTable::State::kResident:
    case ModelTable::State::kRunning:
      reply.Done();
      if (sends) Broadcast(host.digest, *part);
      return;
    case ModelTable::State::kLoading:
      loading_.at(host.digest).replies.push_back(std::move(reply));
      if (deadline) Hurry(host.digest, *deadline);
      if (sends) Broadcast(host.digest, *part);
      return;
    case ModelTable::State::kAbsent:
      break;
  }
  if (Loading* const claimed = BeginClaim(host, reply.sequence(), deadline)) {
    claimed->replies.push_back(std::move(reply));
    if (sends) Broadcast(host.digest, *part);
    return;
  }
  proto::WorkerOutcome no_fit;
  const absl::StatusOr<DeviceRange> range = BeginLoad(host, source.has_value(), address, no_fit);
  if (!range.ok()) {
    if (sends) sources_.broadcasts.Refuse(*part, range.status());
    return reply.Fail(range.status(), no_fit);
  }
  Loading& loading = loading_.at(host.digest);
  const std::uint64_t order = reply.sequence();
  loading.replies.push_back(std::move(reply));
  loading.deadline = deadline;
  loading.source = std::move(source);
  if (sends) Broadcast(host.digest, *part);
  if (range->size > Bytes(0) && part && !sends) return Receive(host, *range, order, loading, *part);
  if (range->size == Bytes(0)) loading.source.reset();
  if (!loading.source) return Send(host, *range, order, loading);
  CopyFromPeer(host, *range, order, *loading.source);
}

absl::StatusOr<DeviceRange> Residency::BeginLoad(const HostModel& host, bool whole, std::uint64_t address,
                                                 proto::WorkerOutcome& no_fit) {
  if (table_.loading() >= limits_.loading_models) {
    return absl::ResourceExhaustedError(
        absl::StrCat(table_.loading(), " models are being swapped in already"));
  }
  const Bytes size(host.weights.size());
  proto::Model model;
  if (links_.needs_model()) {
    TROUPE_ASSIGN_OR_RETURN(model, ReadModel(host, memory_.device().info().pack_target));
  }
  const MemoryUser user{MemoryUser::Kind::kWeights, host.digest};
  absl::StatusOr<DeviceRange> range = memory_.Allocate(user, size, address);
  const auto make_room = [&](Bytes have) {
    return runs_.make_room && size > have && runs_.make_room(size - have);
  };
  if (!range.ok() && make_room(memory_.memory().free)) range = memory_.Allocate(user, size, address);
  if (!range.ok() && room_.MakeRoom(size)) range = memory_.Allocate(user, size, address);
  // What lies between free ranges, and no model.
  while (!range.ok() && make_room(memory_.memory().largest)) range = memory_.Allocate(user, size, address);
  if (absl::IsResourceExhausted(range.status())) no_fit = NoFitOutcome(memory_);
  if (range.ok()) EnterLoad(host, *range, model, whole);
  return range;
}

Residency::Loading& Residency::EnterLoad(const HostModel& host, DeviceRange range, const proto::Model& model,
                                         bool whole) {
  table_.BeginLoading(host.digest, range);
  Loading& loading = loading_[host.digest];
  loading.load = std::make_shared<ModelLoad>(links_.GroupsOf(range.size, &model), whole);
  return loading;
}

void Residency::Claim(const HostModel& host, std::optional<Time> deadline) {
  (void)BeginClaim(host, 0, deadline);
}

// What is kept takes no room and no link: the bound of models on their way is not for it.
Residency::Loading* Residency::BeginClaim(const HostModel& host, std::uint64_t order,
                                          std::optional<Time> deadline) {
  if (!sources_.kept.Has(host.digest)) return nullptr;
  proto::Model model;
  if (links_.needs_model()) {
    absl::StatusOr<proto::Model> read = ReadModel(host, memory_.device().info().pack_target);
    if (!read.ok()) return nullptr;  // the order fails as it does for any model
    model = *std::move(read);
  }
  const auto range = sources_.kept.Take(host.digest, Bytes(host.weights.size()));
  if (!range) return nullptr;
  Loading& loading = EnterLoad(host, *range, model, false);
  loading.kept = true;
  loading.deadline = deadline;
  WeightCheck check;
  check.host = host;
  check.weights = *range;
  check.load = loading.load;
  check.deadline = deadline.value_or(Time::max());
  check.first_group = [this] { FirstGroupThere(); };
  check.done = [this, host, range = *range, order](const absl::Status& status) {
    queue_.Post([this, host, range, order, status] { Checked(host, range, order, status); });
  };
  sources_.checks.Begin(std::move(check));
  return &loading;
}

// For an order that brings the model, the rest comes from the host. Runs that found it here are planned again,
// so that the node hears of what has to come.
void Residency::Checked(const HostModel& host, DeviceRange range, std::uint64_t order,
                        const absl::Status& status) {
  Loading& loading = loading_.at(host.digest);
  if (status.ok()) return Copied(host.digest, status);
  std::fprintf(stderr, "troupe-gpu-worker: %s\n", std::string(status.message()).c_str());
  if (!loading.replies.empty()) {
    loading.host_begins = loading.load->arrived();
    return Send(host, range, order, loading);
  }
  const absl::Status gone = absl::NotFoundError(status.message());
  loading.load->Failed(gone);
  Copied(host.digest, gone);
}

// The model is held as a run holds it, until nothing reads it any more. What comes from another GPU counts only
// when all of it is here, so it is not sent on before.
void Residency::Broadcast(const std::string& digest, const BroadcastPart& part) {
  const auto loading = loading_.find(digest);
  if (loading != loading_.end() && loading->second.source) {
    return sources_.broadcasts.Refuse(
        part, absl::UnavailableError("its sender copies the model from another GPU itself"));
  }
  const ModelTable::Hold hold = table_.Acquire(digest);
  sources_.broadcasts.Send(
      part, hold.weights, loading == loading_.end() ? nullptr : loading->second.load,
      [this, digest, hold] { queue_.Post([this, digest, hold] { Release(digest, hold); }); });
}

void Residency::Receive(const HostModel& host, DeviceRange range, std::uint64_t order, Loading& loading,
                        const BroadcastPart& part) {
  loading.broadcast = true;
  sources_.broadcasts.Receive(
      part, range, loading.load, [this] { FirstGroupThere(); },
      [this, host, range, order](const absl::Status& status) {
        queue_.Post([this, host, range, order, status] { Received(host, range, order, status); });
      });
}

// After a broadcast broke, the groups that are missing come from the host at once.
void Residency::Received(const HostModel& host, DeviceRange range, std::uint64_t order,
                         const absl::Status& status) {
  Loading& loading = loading_.at(host.digest);
  loading.host_begins = loading.load->arrived();
  if (loading.load->complete()) return Copied(host.digest, absl::OkStatus());
  TROUPE_CHECK(!status.ok(), "a broadcast ended well before all had come");
  Send(host, range, order, loading);
}

// Of the groups that are not here yet.
TransferRequest Residency::TransferOf(DeviceRange range, std::uint64_t order, const Loading& loading) const {
  TransferRequest request;
  request.order = order;
  request.deadline = loading.deadline;
  const auto groups = loading.load->groups();
  for (const Group& group : groups.subspan(loading.host_begins)) {
    request.pieces.push_back({.device = range.Part(Bytes(group.offset), Bytes(group.length))});
  }
  if (links_.policy().overlap) request.signals = memory_.device().MakeSignals(request.pieces.size());
  loading.load->RaisedByDevice(request.signals, loading.host_begins, groups.size());
  return request;
}

void Residency::Send(const HostModel& host, DeviceRange range, std::uint64_t order, Loading& loading) {
  TransferRequest request = TransferOf(range, order, loading);
  const std::size_t first = loading.host_begins;
  const auto groups = loading.load->groups().subspan(first);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    // Copies in only read their source.
    request.pieces[i].host = const_cast<std::byte*>(host.weights.data()) + groups[i].offset;
  }
  request.landed = [this, first, load = loading.load](std::size_t group, Time at) {
    load->Arrived(at);
    if (first + group == 0) FirstGroupThere();
  };
  // The callback holds the host copy: the region stays mapped while copies read it.
  request.done = [this, host, load = loading.load](const Completion& completion) {
    if (!completion.status.ok()) load->Failed(completion.status);
    queue_.Post([this, digest = host.digest, status = completion.status] { Copied(digest, status); });
  };
  loading.port = &links_.in();
  loading.transfer = loading.port->Put(std::move(request));
}

void Residency::FirstGroupThere() {
  if (!links_.policy().overlap) return;
  queue_.Post([this] {
    if (runs_.changed) runs_.changed({}, absl::OkStatus());
  });
}

void Residency::CopyFromPeer(const HostModel& host, DeviceRange range, std::uint64_t order,
                             const PinnedSource& source) {
  sources_.peers.Open(source,
                      [this, host, range, order](absl::StatusOr<std::shared_ptr<const PeerMemory>> memory) {
                        queue_.Post([this, host, range, order, memory = std::move(memory)] {
                          if (!memory.ok())
                            return Confirmed(host.digest, loading_.at(host.digest).load, memory.status());
                          SendFromPeer(host, range, order, *memory);
                        });
                      });
}

// The last group is kept back until the source has said that the model was pinned all the time.
void Residency::SendFromPeer(const HostModel& host, DeviceRange range, std::uint64_t order,
                             std::shared_ptr<const PeerMemory> memory) {
  Loading& loading = loading_.at(host.digest);
  TransferRequest request = TransferOf(range, order, loading);
  request.peer = std::move(memory);
  const auto groups = loading.load->groups();
  for (std::size_t i = 0; i < groups.size(); ++i) request.pieces[i].at_peer = Bytes(groups[i].offset);
  request.landed = [this, load = loading.load](std::size_t group, Time at) {
    if (group + 1 == load->groups().size()) return;
    load->Arrived(at);
    if (group == 0) FirstGroupThere();
  };
  request.done = [this, digest = host.digest, load = loading.load,
                  source = *loading.source](const Completion& completion) {
    if (!completion.status.ok()) return Confirmed(digest, load, completion.status);
    sources_.peers.Confirm(
        source, [this, digest, load](const absl::Status& status) { Confirmed(digest, load, status); });
  };
  loading.port = &links_.from(loading.source->gpu);
  loading.transfer = loading.port->Put(std::move(request));
}

namespace {

// Runs that wait for a model whose peer copy failed are answered NOT_FOUND: the node plans them again.
absl::Status DidNotCome(const std::string& digest, const absl::Status& status) {
  return absl::NotFoundError(absl::StrCat("model ", digest, " did not come: ", status.message()));
}

}  // namespace

// Any thread.
void Residency::Confirmed(const std::string& digest, const std::shared_ptr<ModelLoad>& load,
                          const absl::Status& status) {
  status.ok() ? load->Arrived(transport::SteadyNow()) : load->Failed(DidNotCome(digest, status));
  queue_.Post([this, digest, status] { Copied(digest, status); });
}

void Residency::Hurry(const std::string& digest, Time deadline) {
  const auto found = loading_.find(digest);
  if (found == loading_.end()) return;
  Loading& loading = found->second;
  loading.deadline = std::min(loading.deadline.value_or(deadline), deadline);
  if (loading.port != nullptr) loading.port->Raise(loading.transfer, deadline);
  if (loading.kept) sources_.checks.Hurry(digest, deadline);
}

std::shared_ptr<ModelLoad> Residency::Pipelined(const std::string& digest) const {
  const auto found = loading_.find(digest);
  return found == loading_.end() || !links_.policy().overlap ? nullptr : found->second.load;
}

void Residency::Defer(const std::string& digest, std::function<void()> then) {
  loading_.at(digest).deferred.push_back(std::move(then));
}

void Residency::Release(const std::string& digest, const ModelTable::Hold& hold) {
  if (const std::optional<DeviceRange> range = table_.Release(digest, hold)) memory_.Free(*range);
}

namespace {

proto::WorkerOutcome SwapOutcome(const ModelLoad& load, Bytes moved) {
  proto::WorkerOutcome outcome;
  outcome.set_bytes(moved.count());
  proto::SwapInOutcome& detail = *outcome.mutable_swap_in();
  const auto groups = load.groups();
  const bool even = std::all_of(groups.begin(), groups.end() - 1,
                                [&](const Group& group) { return group.length == groups.front().length; });
  if (even) detail.set_group_bytes(groups.front().length);
  for (std::size_t i = 1; i <= groups.size(); ++i) {
    detail.add_group_ns(load.ArrivalOf(i).time_since_epoch().count());
  }
  return outcome;
}

}  // namespace

void Residency::Copied(const std::string& digest, const absl::Status& status) {
  Loading loading = std::move(loading_.extract(digest).mapped());
  proto::WorkerOutcome outcome;
  if (status.ok()) {
    table_.Loaded(digest);
    const auto groups = loading.load->groups();
    const bool all_from_host = !loading.broadcast && !loading.kept;
    const bool some_from_host = loading.kept ? loading.port != nullptr : loading.host_begins < groups.size();
    const Bytes others(some_from_host ? groups[loading.host_begins].offset : table_.SizeOf(digest).count());
    const Bytes moved = table_.SizeOf(digest) - (all_from_host ? Bytes(0) : others);
    outcome = SwapOutcome(*loading.load, moved);
    swapped_.models += loading.kept && !some_from_host ? 0 : 1;
    if (!loading.source) swapped_.bytes += moved;
  } else if (const std::optional<DeviceRange> range = table_.LoadFailed(digest)) {
    memory_.Free(*range);
  }
  for (Reply& reply : loading.replies) {
    status.ok() ? reply.Done(outcome) : reply.Fail(status);
    outcome.set_bytes(0);  // moved once, for the first that asked
  }
  for (const auto& then : loading.deferred) then();
  if (runs_.changed)
    runs_.changed(digest, !status.ok() && loading.source ? DidNotCome(digest, status) : status);
}

absl::Status Residency::MayEvict(const std::string& digest) const {
  if (runs_.wanted && runs_.wanted(digest)) {
    return absl::FailedPreconditionError(
        absl::StrCat("runs wait for model ", digest, ": evict it afterwards"));
  }
  if (sources_.kept.Has(digest)) return absl::OkStatus();
  return table_.MayEvict(digest);
}

void Residency::Evict(const std::string& digest, Reply reply) {
  if (const absl::Status may = MayEvict(digest); !may.ok()) {
    reply.Fail(may);
    return;
  }
  if (sources_.kept.Has(digest)) {
    sources_.kept.Drop(digest);
    return reply.Done();
  }
  const absl::StatusOr<DeviceRange> range = table_.Evict(digest);
  if (!range.ok()) {
    reply.Fail(range.status());
    return;
  }
  memory_.Free(*range);
  reply.Done();
}

}  // namespace troupe::gpu
