#include "gpu/worker/tensor_store.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/status.hpp"

namespace troupe::gpu {

namespace {

// A device that does not copy by then is broken: the watchdog of the worker sees it.
constexpr Duration kMovePatience = std::chrono::seconds(5);

absl::Status NoSuchTensor(std::uint64_t number) {
  return absl::NotFoundError(absl::StrCat("this worker keeps no tensor ", number,
                                          ": it was released, or its worker has ended since"));
}

}  // namespace

TensorStore::TensorStore(DeviceMemory& memory, TaskQueue& queue, DeviceLinks& links,
                         const IntermediatesOptions& options)
    : memory_(memory),
      queue_(queue),
      links_(links),
      options_(options),
      policy_(FindIntermediates(options.name).value_or(IntermediatesPolicy())),
      capacity_(policy_.on_device ? Bytes(memory.memory().total.count() / 100 * options.percent) : Bytes(0)),
      stream_(memory.device().MakeStream()) {}

// What is still on its way calls back.
TensorStore::~TensorStore() {
  links_.out().Close();
}

std::optional<DeviceRange> TensorStore::Reserve(std::string_view digest, Bytes size) {
  if (on_device_ + size > capacity_) return std::nullopt;
  // As weights: what is set aside for runs stays theirs.
  const absl::StatusOr<DeviceRange> range = memory_.Allocate({MemoryUser::Kind::kState, digest}, size);
  if (!range.ok()) return std::nullopt;
  on_device_ += size;
  return *range;
}

void TensorStore::GiveBack(const DeviceRange& range) {
  on_device_ -= range.size;
  memory_.Free(range);
}

absl::Status TensorStore::Keep(std::uint64_t number, const DeviceRange& range, Bytes size,
                               ChannelPtr channel) {
  const auto [it, added] = tensors_.try_emplace(number);
  if (!added) {
    GiveBack(range);
    return absl::AlreadyExistsError(absl::StrCat("this worker keeps a tensor ", number, " already"));
  }
  it->second.size = size;
  it->second.range = range;
  it->second.channel = std::move(channel);
  kept_ += size;
  return absl::OkStatus();
}

absl::StatusOr<TensorStore::Tensors::iterator> TensorStore::Find(const Part& part) {
  const auto it = tensors_.find(part.number);
  if (it == tensors_.end() || it->second.dropped) return NoSuchTensor(part.number);
  const Bytes size = it->second.size;
  if (part.offset > size || part.length > size - part.offset) {
    return absl::OutOfRangeError(absl::StrCat(part.length.count(), " bytes from ", part.offset.count(),
                                              " of tensor ", part.number, " were asked for, which has ",
                                              size.count()));
  }
  return it;
}

absl::StatusOr<transport::TensorData> TensorStore::HostBytes(const Tensor& tensor) {
  return tensor.channel->FetchHere(*tensor.places.at({Bytes(0), tensor.size}).ref);
}

absl::StatusOr<TensorStore::Input> TensorStore::Use(const Part& part) {
  TROUPE_ASSIGN_OR_RETURN(const auto it, Find(part));
  Tensor& tensor = it->second;
  Input input;
  if (tensor.range) {
    input.on_device = tensor.range->Part(part.offset, part.length);
  } else {
    TROUPE_ASSIGN_OR_RETURN(input.keeper, HostBytes(tensor));
    input.in_arena = input.keeper.bytes().subspan(part.offset.count(), part.length.count());
  }
  ++tensor.users;
  return input;
}

void TensorStore::Leave(std::uint64_t number) {
  const auto it = tensors_.find(number);
  TROUPE_CHECK(it != tensors_.end() && it->second.users > 0, "a run leaves a tensor that it does not use");
  if (--it->second.users == 0 && it->second.dropped) Erase(it);
}

void TensorStore::Export(const Part& part, Exported done) {
  const auto found = Find(part);
  if (!found.ok()) return done(found.status());
  Tensor& tensor = (*found)->second;
  Place& place = tensor.places[{part.offset, part.length}];
  if (place.ref) return done(place.ref->arena());
  place.waiting.push_back(std::move(done));
  if (place.waiting.size() == 1) CopyOut(tensor, part);
}

void TensorStore::CopyOut(Tensor& tensor, const Part& part) {
  ++tensor.users;
  absl::StatusOr<transport::Reservation> reserved = tensor.channel->ReserveSlice(part.length);
  if (!reserved.ok()) return Copied(part, nullptr, reserved.status());
  auto room = std::make_shared<transport::Reservation>(*std::move(reserved));
  if (!tensor.range) {
    const absl::StatusOr<transport::TensorData> bytes = HostBytes(tensor);
    if (bytes.ok())
      std::ranges::copy(bytes->bytes().subspan(part.offset.count(), part.length.count()),
                        room->bytes().begin());
    return Copied(part, room, bytes.status());
  }
  if (part.length == Bytes(0)) return Copied(part, room, absl::OkStatus());
  bytes_out_ += part.length;
  TransferRequest transfer;
  transfer.pieces.push_back({tensor.range->Part(part.offset, part.length), room->bytes().data()});
  transfer.done = [this, part, room](const Completion& completion) {
    queue_.Post([this, part, room, status = completion.status] { Copied(part, room, status); });
  };
  links_.out().Put(std::move(transfer));
}

void TensorStore::Copied(const Part& part, const std::shared_ptr<transport::Reservation>& room,
                         const absl::Status& status) {
  Tensor& tensor = tensors_.at(part.number);
  const auto place = tensor.places.find({part.offset, part.length});
  const std::vector<Exported> waiting = std::exchange(place->second.waiting, {});
  absl::StatusOr<proto::ArenaRef> answer = NoSuchTensor(part.number);
  if (!status.ok()) {
    tensor.places.erase(place);
    answer = status;
  } else {
    place->second.ref = room->Commit();
    if (!tensor.dropped) answer = place->second.ref->arena();
  }
  Leave(part.number);
  for (const Exported& done : waiting) done(answer);
}

void TensorStore::Drop(std::uint64_t number) {
  const auto it = tensors_.find(number);
  if (it == tensors_.end()) return;  // dropped before, or never ours: nothing to free
  it->second.dropped = true;
  if (it->second.users == 0) Erase(it);
}

void TensorStore::DropAll() {
  for (auto it = tensors_.begin(); it != tensors_.end();) {
    const auto next = std::next(it);
    it->second.dropped = true;
    if (it->second.users == 0) Erase(it);
    it = next;
  }
}

void TensorStore::FreeRange(Tensor& tensor) {
  if (tensor.range) GiveBack(*std::exchange(tensor.range, std::nullopt));
}

void TensorStore::Erase(Tensors::iterator it) {
  Tensor& tensor = it->second;
  FreeRange(tensor);
  for (const auto& [extent, place] : tensor.places)
    tensor.channel->Release(*place.ref).IgnoreError();  // its session may have ended
  kept_ -= tensor.size;
  tensors_.erase(it);
}

bool TensorStore::Move(Tensor& tensor) {
  Place& whole = tensor.places[{Bytes(0), tensor.size}];
  if (!whole.ref) {
    absl::StatusOr<transport::Reservation> room = tensor.channel->ReserveSlice(tensor.size);
    EventPtr copy;
    if (room.ok()) copy = stream_->CopyOut(room->bytes(), tensor.range->Part(Bytes(0), tensor.size), nullptr);
    if (!room.ok() || !copy->Wait(kMovePatience).ok()) {
      // A copy that does not end may still write to its slice, which then is never given away again.
      if (room.ok() && !copy->done()) (void)room->Commit();
      tensor.places.erase({Bytes(0), tensor.size});
      return false;
    }
    whole.ref = room->Commit();
    bytes_out_ += tensor.size;
  }
  moved_ += tensor.size;
  FreeRange(tensor);
  return true;
}

Bytes TensorStore::MakeRoom(Bytes size) {
  if (!policy_.moves) return Bytes(0);
  std::vector<Tensor*> movable;
  for (auto& [number, tensor] : tensors_)
    if (tensor.range && tensor.users == 0 && !tensor.dropped) movable.push_back(&tensor);
  std::ranges::stable_sort(movable, [](const Tensor* a, const Tensor* b) { return a->size > b->size; });
  Bytes given;
  for (Tensor* tensor : movable) {
    if (given >= size) break;
    const Bytes freed = tensor->range->size;
    if (Move(*tensor)) given += freed;
  }
  return given;
}

}  // namespace troupe::gpu
