#include "gpu/worker/broadcast_handler.hpp"

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu {
namespace {

// While a load is waited for, how often it is asked whether the handler closes.
constexpr Duration kSlice = std::chrono::milliseconds(50);
// Broadcasts that wait for the one under way; more take their models from the host.
constexpr std::size_t kWaiting = 4;
constexpr Bytes kSmallestPiece = KiB(4);

// What the sender tells: in which pieces the bytes come, and the broadcast's identity.
std::string Invitation(Bytes piece, const std::string& id) {
  return absl::StrCat(piece.count(), " ", id);
}
absl::Status ReadInvitation(const std::string& text, Bytes& piece, std::string& id) {
  const std::size_t space = text.find(' ');
  std::uint64_t size = 0;
  if (space == std::string::npos || !absl::SimpleAtoi(text.substr(0, space), &size) ||
      Bytes(size) < kSmallestPiece || text.size() - space - 1 > transport::Broadcaster::kIdBytes) {
    return absl::UnavailableError("the sender's worker says what makes no sense: it is of another build");
  }
  piece = Bytes(size);
  id = text.substr(space + 1);
  return absl::OkStatus();
}

// How many groups, from the first, lie in these bytes whole.
std::size_t GroupsIn(std::span<const Group> groups, Bytes bytes) {
  std::size_t count = 0;
  while (count < groups.size() && groups[count].offset + groups[count].length <= bytes.count()) ++count;
  return count;
}
// How many groups, from the first, these bytes touch.
std::size_t GroupsUnder(std::span<const Group> groups, Bytes bytes) {
  std::size_t count = 0;
  while (count < groups.size() && groups[count].offset < bytes.count()) ++count;
  return count;
}

}  // namespace

absl::StatusOr<BroadcastPart> ReadBroadcast(const proto::Broadcast& order, std::uint32_t gpu,
                                            const std::string& directory) {
  BroadcastPart part{order.meeting(), order.socket(), {}};
  part.slot.members = {order.gpus().begin(), order.gpus().end()};
  const auto mine = std::ranges::find(part.slot.members, gpu);
  if (mine == part.slot.members.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("GPU ", gpu, " is told of broadcast ", order.meeting(), ", and is not a member of it"));
  }
  part.slot.rank = static_cast<std::uint32_t>(mine - part.slot.members.begin());
  TROUPE_RETURN_IF_ERROR(transport::CheckSlot(part.slot));
  if (part.meeting.empty() || part.meeting.size() > transport::MeetingLimits::kName)
    return absl::InvalidArgumentError("a broadcast needs a short name");
  if (!part.sends() && std::filesystem::path(part.socket).parent_path() != directory) {
    return absl::InvalidArgumentError(absl::StrCat("broadcast ", part.meeting, " meets at '", part.socket,
                                                   "', which is not in ", directory));
  }
  return part;
}

BroadcastHandler::BroadcastHandler(Device& device, Setup setup, const WorkerLimits& limits)
    : device_(device), setup_(std::move(setup)), limits_(limits) {
  if (setup_.socket.empty() || device_.broadcaster() == nullptr) return;
  // Without a place to meet, models come from the host: the description says that this worker broadcasts
  // nothing.
  auto place = transport::MeetingPlace::Open(setup_.socket, setup_.refusals);
  if (place.ok()) place_ = *std::move(place);
}

BroadcastHandler::~BroadcastHandler() {
  if (place_ != nullptr) place_->Close();
  const std::lock_guard lock(mutex_);
  closing_ = true;
  if (current_ != nullptr) current_->Abort();
}

void BroadcastHandler::Refuse(const BroadcastPart& part, const absl::Status& why) {
  if (able()) place_->Answer(part.meeting, why);
}

bool BroadcastHandler::Enter() {
  const std::lock_guard lock(mutex_);
  if (under_way_ > kWaiting) return false;
  ++under_way_;
  return true;
}

void BroadcastHandler::Send(const BroadcastPart& part, DeviceRange weights, std::shared_ptr<ModelLoad> load,
                            std::function<void()> ended) {
  if (!Enter()) {
    Refuse(part, absl::UnavailableError("its sender has too many to send"));
    return ended();
  }
  thread_.Post([this, part, weights, load = std::move(load), ended = std::move(ended)] {
    const absl::Status sent = SendAll(part, weights, load.get());
    if (!sent.ok()) Refuse(part, sent);  // when it was not joined yet
    Leave();
    ended();
  });
}

void BroadcastHandler::Receive(const BroadcastPart& part, DeviceRange weights,
                               std::shared_ptr<ModelLoad> load, std::function<void()> first,
                               std::function<void(const absl::Status&)> ended) {
  if (!Enter()) return ended(absl::UnavailableError("this GPU takes too many broadcasts already"));
  thread_.Post(
      [this, part, weights, load = std::move(load), first = std::move(first), ended = std::move(ended)] {
        ended(ReceiveAll(part, weights, *load, first));
        // The others may need this end until they have all.
        const std::shared_ptr<transport::BroadcastEnd> end = current();
        if (end != nullptr && load->complete()) end->Finish().IgnoreError();
        Leave();
      });
}

std::shared_ptr<transport::BroadcastEnd> BroadcastHandler::current() {
  const std::lock_guard lock(mutex_);
  return current_;
}

void BroadcastHandler::Leave() {
  std::shared_ptr<transport::BroadcastEnd> left;
  const std::lock_guard lock(mutex_);
  left = std::move(current_);
  --under_way_;
}

absl::StatusOr<transport::BroadcastEnd*> BroadcastHandler::Join(const transport::BroadcastSlot& slot) {
  TROUPE_ASSIGN_OR_RETURN(std::shared_ptr<transport::BroadcastEnd> end,
                          device_.broadcaster()->Join(slot, limits_.broadcast_patience));
  const std::lock_guard lock(mutex_);
  if (closing_) return absl::UnavailableError("this worker is ending");
  current_ = std::move(end);
  return current_.get();
}

absl::Status BroadcastHandler::AwaitGroups(ModelLoad& load, Bytes bytes) {
  const EventPtr there = load.After(GroupsUnder(load.groups(), bytes));
  while (there != nullptr && !there->done()) {
    (void)there->Wait(kSlice);
    const std::lock_guard lock(mutex_);
    if (closing_) return absl::UnavailableError("this worker is ending");
  }
  return there == nullptr ? absl::OkStatus() : there->status();
}

absl::Status BroadcastHandler::SendAll(const BroadcastPart& part, DeviceRange weights, ModelLoad* load) {
  TROUPE_ASSIGN_OR_RETURN(
      const std::vector<std::string> kept,
      place_->Gather(part.meeting, part.slot.members.size() - 1, limits_.broadcast_meeting));
  transport::BroadcastSlot slot = part.slot;
  slot.id = device_.broadcaster()->Kept(slot.members);
  // What one member does not have any more is of no use to the others.
  if (slot.id.empty() || std::ranges::count(kept, slot.id) != std::ssize(kept)) {
    TROUPE_ASSIGN_OR_RETURN(slot.id, device_.broadcaster()->NewId());
  }
  const Bytes piece = std::max(setup_.piece, kSmallestPiece);
  place_->Answer(part.meeting, Invitation(piece, slot.id));
  TROUPE_ASSIGN_OR_RETURN(transport::BroadcastEnd* const end, Join(slot));
  for (Bytes sent; sent < weights.size;) {
    const DeviceRange next = weights.Part(sent, std::min(piece, weights.size - sent));
    sent += next.size;
    if (load != nullptr) TROUPE_RETURN_IF_ERROR(AwaitGroups(*load, sent));
    TROUPE_RETURN_IF_ERROR(end->Pass({next.address, next.size.count()}));
  }
  return end->Finish();
}

absl::Status BroadcastHandler::ReceiveAll(const BroadcastPart& part, DeviceRange weights, ModelLoad& load,
                                          const std::function<void()>& first) {
  TROUPE_ASSIGN_OR_RETURN(
      const std::string invitation,
      transport::AttendMeeting(part.socket, part.meeting, device_.broadcaster()->Kept(part.slot.members),
                               2 * limits_.broadcast_meeting));
  transport::BroadcastSlot slot = part.slot;
  Bytes piece;
  TROUPE_RETURN_IF_ERROR(ReadInvitation(invitation, piece, slot.id));
  TROUPE_ASSIGN_OR_RETURN(transport::BroadcastEnd* const end, Join(slot));
  for (Bytes received; received < weights.size;) {
    const DeviceRange next = weights.Part(received, std::min(piece, weights.size - received));
    TROUPE_RETURN_IF_ERROR(end->Pass({next.address, next.size.count()}));
    received += next.size;
    const Time now = transport::SteadyNow();
    const bool none = load.arrived() == 0;
    for (std::size_t i = load.arrived(); i < GroupsIn(load.groups(), received); ++i) load.Arrived(now);
    if (none && load.arrived() > 0) first();
  }
  return absl::OkStatus();
}

}  // namespace troupe::gpu
