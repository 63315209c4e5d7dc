#include "transport/local_channel.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "transport/arena.hpp"
#include "transport/arena_client.hpp"
#include "transport/arena_server.hpp"
#include "transport/host_id.hpp"

namespace troupe::transport {
namespace {

// One reference to a slice of our own arena, dropped at the end.
class SlicePin {
 public:
  SlicePin(std::shared_ptr<Arena> arena, std::uint64_t offset, std::uint64_t slice)
      : arena_(std::move(arena)), offset_(offset), slice_(slice) {}
  SlicePin(const SlicePin&) = delete;
  SlicePin& operator=(const SlicePin&) = delete;
  ~SlicePin() { arena_->Release(offset_, slice_).IgnoreError(); }

 private:
  std::shared_ptr<Arena> arena_;
  std::uint64_t offset_;
  std::uint64_t slice_;
};

ArenaClient::Options ClientOptions(const LocalChannel::Options& options) {
  ArenaClient::Options client;
  client.host = options.host;
  client.directories = options.directories;
  return client;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalChannel>> LocalChannel::Create(Options options) {
  if (options.host.empty()) options.host = HostId();
  TROUPE_ASSIGN_OR_RETURN(std::shared_ptr<Arena> arena, Arena::Create(options.name, options.capacity));
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<ArenaServer> server,
                          ArenaServer::Start(options.socket, options.refusals));
  TROUPE_RETURN_IF_ERROR(server->Add(arena));
  return std::unique_ptr<LocalChannel>(
      new LocalChannel(std::move(options), std::move(arena), std::move(server)));
}

LocalChannel::LocalChannel(Options options, std::shared_ptr<Arena> arena, std::unique_ptr<ArenaServer> server)
    : options_(std::move(options)),
      arena_(std::move(arena)),
      server_(std::move(server)),
      client_(std::make_unique<ArenaClient>(ClientOptions(options_))) {}

LocalChannel::~LocalChannel() = default;

absl::StatusOr<Reservation> LocalChannel::Reserve(Bytes size) {
  if (size <= kInlineLimit) return InlineReservation(size);
  return ReserveSlice(size);
}

absl::StatusOr<Reservation> LocalChannel::ReserveSlice(Bytes size) {
  TROUPE_ASSIGN_OR_RETURN(const ArenaSlice slice, arena_->Allocate(size));
  proto::TensorRef ref;
  *ref.mutable_arena() = ArenaAddress();
  ref.mutable_arena()->set_offset(slice.offset);
  ref.mutable_arena()->set_length(slice.bytes.size());
  ref.mutable_arena()->set_slice(slice.slice);
  Reservation::Room room;
  room.bytes = slice.bytes;
  room.commit = [ref = std::move(ref)] { return ref; };
  room.cancel = [arena = arena_, slice] { arena->Release(slice.offset, slice.slice).IgnoreError(); };
  return Reservation(std::move(room));
}

proto::ArenaRef LocalChannel::ArenaAddress() const {
  proto::ArenaRef address;
  address.set_host(options_.host);
  address.set_socket(options_.socket);
  address.set_endpoint(options_.endpoint);
  address.set_arena(arena_->id());
  return address;
}

bool LocalChannel::Own(const proto::ArenaRef& ref) const {
  return ref.arena() == arena_->id() && ref.host() == options_.host;
}

bool LocalChannel::Near(const proto::TensorRef& ref) const {
  return !ref.has_arena() || Own(ref.arena()) || client_->Reachable(ref.arena());
}

absl::StatusOr<TensorData> LocalChannel::FetchHere(const proto::TensorRef& ref) {
  if (!ref.has_arena()) return InlineData(ref);
  const proto::ArenaRef& place = ref.arena();
  if (Own(place)) {
    TROUPE_ASSIGN_OR_RETURN(const auto bytes, arena_->Pin(place.offset(), place.slice(), place.length()));
    return TensorData(bytes, std::make_shared<SlicePin>(arena_, place.offset(), place.slice()), ref);
  }
  TROUPE_ASSIGN_OR_RETURN(ArenaClient::Resolved resolved, client_->Resolve(place));
  return TensorData(resolved.bytes, std::move(resolved.memory), ref);
}

void LocalChannel::FetchAsync(const proto::TensorRef& ref, Duration /*timeout*/, Done done) {
  done(FetchHere(ref));
}

absl::Status LocalChannel::Release(const proto::TensorRef& ref) {
  if (!ref.has_arena()) return absl::OkStatus();
  if (!Own(ref.arena())) {
    return absl::FailedPreconditionError(absl::StrCat(
        "arena ", ref.arena().arena(), " at ", ref.arena().socket(), " is another process's to release"));
  }
  return arena_->Release(ref.arena().offset(), ref.arena().slice());
}

absl::Status LocalChannel::Retain(const proto::TensorRef& ref) {
  if (!ref.has_arena()) return absl::OkStatus();
  if (!Own(ref.arena())) {
    return absl::FailedPreconditionError(absl::StrCat(
        "arena ", ref.arena().arena(), " at ", ref.arena().socket(), " is another process's to retain"));
  }
  return arena_->Retain(ref.arena().offset(), ref.arena().slice());
}

Bytes LocalChannel::used() const {
  return arena_->used();
}
Bytes LocalChannel::capacity() const {
  return arena_->capacity();
}

absl::StatusOr<proto::ArenaRef> LocalChannel::HandOut(UniqueFd descriptor) {
  proto::ArenaRef address = ArenaAddress();
  address.clear_endpoint();  // it is not read over the network
  address.set_arena(UniqueId());
  TROUPE_RETURN_IF_ERROR(server_->Add(address.arena(), std::move(descriptor)));
  return address;
}
void LocalChannel::Withdraw(std::uint64_t id) {
  if (id != arena_->id()) server_->Remove(id);
}
absl::StatusOr<UniqueFd> LocalChannel::Ask(const proto::ArenaRef& ref) {
  return client_->Ask(ref);
}

void LocalChannel::Forget(const std::string& socket) {
  client_->Forget(socket);
}

}  // namespace troupe::transport
