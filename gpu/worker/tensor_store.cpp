#include "gpu/worker/tensor_store.hpp"

#include <algorithm>
#include <functional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/status.hpp"

namespace troupe::gpu {

namespace {

// A device that does not copy by then is broken: the watchdog of the worker sees it.
constexpr Duration kMovePatience = std::chrono::seconds(5);
// What was lacking within it will be lacking again: a window of requests to a busy GPU.
constexpr Duration kPressureWindow = std::chrono::seconds(1);

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
      capacity_(Bytes(memory.memory().total.count() / 100 * policy_.percent)),
      stream_(memory.device().MakeStream()),
      pressure_(kPressureWindow) {
  if (!policy_.fixed) return;
  const auto region = memory_.Allocate({MemoryUser::Kind::kState, ""}, capacity_);
  if (region.ok()) region_.emplace(*region);
}

// What is still on its way calls back.
TensorStore::~TensorStore() {
  links_.out().Close();
  if (region_) memory_.Free(region_->region());
}

std::optional<DeviceRange> TensorStore::Reserve(std::string_view digest, Bytes size) {
  if (count_.on_device + size > capacity_) return std::nullopt;
  if (policy_.fixed) {
    const auto piece = region_ ? region_->Allocate(size) : std::nullopt;
    if (piece) count_.on_device += size;
    return piece;
  }
  // As weights: what is set aside for runs stays theirs.
  const absl::StatusOr<DeviceRange> range = memory_.Allocate({MemoryUser::Kind::kState, digest}, size);
  if (!range.ok()) return std::nullopt;
  count_.on_device += size;
  return *range;
}

void TensorStore::GiveBack(const DeviceRange& range) {
  count_.on_device -= range.size;
  region_ ? region_->Free(range) : memory_.Free(range);
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
  count_.kept += size;
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
  --it->second.users;
  EraseIfUnused(it);
}

void TensorStore::Export(const Part& part, Exported done) {
  const auto found = Find(part);
  if (!found.ok()) return done(found.status());
  Tensor& tensor = (*found)->second;
  Place& place = tensor.places[{part.offset, part.length}];
  if (place.ref) return done(place.ref->arena());
  place.waiting.push_back(std::move(done));
  if (place.course == nullptr) CopyOut(tensor, part);
}

void TensorStore::CopyOut(Tensor& tensor, const Part& part) {
  const auto course = std::make_shared<Course>();
  tensor.places.at({part.offset, part.length}).course = course;
  ++tensor.copies;
  const auto ended = [&](const absl::Status& status) {
    course->ended.set_value(status);
    Settle(part, course);
  };
  absl::StatusOr<transport::Reservation> reserved = tensor.channel->ReserveSlice(part.length);
  if (!reserved.ok()) return ended(reserved.status());
  course->room = std::make_shared<transport::Reservation>(*std::move(reserved));
  if (!tensor.range) {
    const absl::StatusOr<transport::TensorData> bytes = HostBytes(tensor);
    if (bytes.ok())
      std::ranges::copy(bytes->bytes().subspan(part.offset.count(), part.length.count()),
                        course->room->bytes().begin());
    return ended(bytes.status());
  }
  if (part.length == Bytes(0)) return ended(absl::OkStatus());
  count_.out += part.length;
  TransferRequest transfer;
  transfer.pieces.push_back({tensor.range->Part(part.offset, part.length), course->room->bytes().data()});
  transfer.done = [this, part, course](const Completion& completion) {
    course->ended.set_value(completion.status);
    queue_.Post([this, part, course] { Settle(part, course); });
  };
  links_.out().Put(std::move(transfer));
}

void TensorStore::Settle(const Part& part, const CoursePtr& course) {
  if (std::exchange(course->settled, true)) return;
  const auto it = tensors_.find(part.number);
  Tensor& tensor = it->second;
  const auto place = tensor.places.find({part.offset, part.length});
  const std::vector<Exported> waiting = std::exchange(place->second.waiting, {});
  const absl::Status& status = course->status.get();
  absl::StatusOr<proto::ArenaRef> answer = NoSuchTensor(part.number);
  if (!status.ok()) {
    tensor.places.erase(place);
    answer = status;
  } else {
    place->second.course = nullptr;
    place->second.ref = course->room->Commit();
    if (!tensor.dropped) answer = place->second.ref->arena();
  }
  --tensor.copies;
  EraseIfUnused(it);
  for (const Exported& done : waiting) done(answer);
}

void TensorStore::Drop(std::uint64_t number) {
  const auto it = tensors_.find(number);
  if (it == tensors_.end()) return;  // dropped before, or never ours: nothing to free
  it->second.dropped = true;
  EraseIfUnused(it);
}

void TensorStore::EraseIfUnused(Tensors::iterator it) {
  if (it->second.dropped && it->second.users + it->second.copies == 0) Erase(it);
}

void TensorStore::DropAll() {
  for (auto it = tensors_.begin(); it != tensors_.end();) {
    const auto next = std::next(it);
    it->second.dropped = true;
    EraseIfUnused(it);
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
  count_.kept -= tensor.size;
  tensors_.erase(it);
}

bool TensorStore::AwaitCopy(Tensors::iterator it) {
  const CoursePtr course = CourseOf(it->second);
  if (course == nullptr || course->status.wait_for(kMovePatience) != std::future_status::ready) return false;
  Settle({.number = it->first, .offset = Bytes(0), .length = it->second.size}, course);
  return IsCopied(it->second);
}

bool TensorStore::CopyNow(Tensor& tensor) {
  absl::StatusOr<transport::Reservation> room = tensor.channel->ReserveSlice(tensor.size);
  if (!room.ok()) return false;
  const EventPtr copy = stream_->CopyOut(room->bytes(), tensor.range->Part(Bytes(0), tensor.size), nullptr);
  if (!copy->Wait(kMovePatience).ok()) {
    // A copy that does not end may still write to its slice, which then is never given away again.
    if (!copy->done()) (void)room->Commit();
    return false;
  }
  tensor.places[{Bytes(0), tensor.size}].ref = room->Commit();
  count_.out += tensor.size;
  return true;
}

bool TensorStore::Move(Tensors::iterator it) {
  Tensor& tensor = it->second;
  if (!IsCopied(tensor) && !AwaitCopy(it) && (tensor.copies > 0 || !CopyNow(tensor))) return false;
  count_.moved += tensor.size;
  FreeRange(tensor);
  return true;
}

bool TensorStore::IsCopied(const Tensor& tensor) {
  const auto whole = tensor.places.find({Bytes(0), tensor.size});
  return whole != tensor.places.end() && whole->second.ref;
}

TensorStore::CoursePtr TensorStore::CourseOf(const Tensor& tensor) {
  const auto whole = tensor.places.find({Bytes(0), tensor.size});
  return whole == tensor.places.end() ? nullptr : whole->second.course;
}

std::vector<TensorStore::Tensors::iterator> TensorStore::Movable() {
  std::vector<Tensors::iterator> movable;
  for (auto it = tensors_.begin(); it != tensors_.end(); ++it) {
    const Tensor& tensor = it->second;
    const std::size_t other_copies = tensor.copies - (CourseOf(tensor) != nullptr ? 1 : 0);
    if (tensor.range && tensor.users + other_copies == 0 && !tensor.dropped) movable.push_back(it);
  }
  std::ranges::stable_sort(movable, std::greater<>(), [](const Tensors::iterator& it) {
    return std::tuple(IsCopied(it->second), CourseOf(it->second) != nullptr, it->second.size);
  });
  return movable;
}

Bytes TensorStore::MakeRoom(Bytes size) {
  if (!policy_.moves) return Bytes(0);
  pressure_.Lacked(size);
  Bytes given;
  for (const auto& it : Movable()) {
    if (given >= size) break;
    const Bytes freed = it->second.range->size;
    if (Move(it)) given += freed;
  }
  return given;
}

void TensorStore::Tick(Time now) {
  if (!policy_.ahead) return;
  const Bytes expected = pressure_.Expected(now);
  if (expected == Bytes(0)) return;
  Bytes ready;
  for (const auto& it : Movable()) {
    if (ready >= expected) return;
    ready += it->second.size;
    if (IsCopied(it->second) || CourseOf(it->second) != nullptr) continue;
    // An arena that is full is told to those that need it.
    Export({.number = it->first, .offset = Bytes(0), .length = it->second.size}, [](const auto&) {});
  }
}

}  // namespace troupe::gpu
