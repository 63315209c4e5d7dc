#include "transport/remote_channel.hpp"

#include <mutex>
#include <utility>

#include "base/status.hpp"
#include "transport/arena.hpp"

namespace troupe::transport {
namespace {

// The endpoint starts first, since its address is part of every reference: until the channel is there, it has
// nothing.
struct Served {
  std::shared_ptr<ArenaExports> exports;
  std::shared_ptr<const ChannelCut> cut;
  std::mutex mutex;
  std::weak_ptr<LocalChannel> channel;  // guarded by mutex
};

absl::StatusOr<PinnedBytes> PinOwn(Served& served, const proto::ArenaRef& asked) {
  if (served.cut) TROUPE_RETURN_IF_ERROR(served.cut->Check());
  std::shared_ptr<LocalChannel> channel;
  {
    const std::lock_guard lock(served.mutex);
    channel = served.channel.lock();
  }
  if (!channel || asked.arena() != channel->arena()->id()) return served.exports->Pin(asked);
  proto::TensorRef ref;
  *ref.mutable_arena() = asked;
  ref.mutable_arena()->set_host(channel->host());
  TROUPE_ASSIGN_OR_RETURN(TensorData data, channel->FetchHere(ref));
  auto pin = std::make_shared<const TensorData>(std::move(data));
  return PinnedBytes{pin->bytes(), pin};
}

// A fetched tensor becomes a tensor of this host that lives as long as it is held.
absl::StatusOr<TensorData> Adopt(LocalChannel& local, Reservation& room) {
  const proto::TensorRef ref = room.Commit();
  absl::StatusOr<TensorData> data = local.FetchHere(ref);
  TROUPE_RETURN_IF_ERROR(local.Release(ref));
  return data;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RemoteChannel>> RemoteChannel::Create(Options options) {
  auto served = std::make_shared<Served>();
  std::unique_ptr<RemoteChannel> channel(new RemoteChannel());
  served->exports = channel->exports_;
  served->cut = channel->cut_ = std::move(options.cut);
  TROUPE_ASSIGN_OR_RETURN(channel->endpoint_, options.start([served](const proto::ArenaRef& ref) {
    return PinOwn(*served, ref);
  }));
  options.local.endpoint = channel->endpoint_->address();
  TROUPE_ASSIGN_OR_RETURN(channel->local_, LocalChannel::Create(std::move(options.local)));
  const std::lock_guard lock(served->mutex);
  served->channel = channel->local_;
  return channel;
}

RemoteChannel::~RemoteChannel() {
  endpoint_.reset();
}

bool RemoteChannel::Own(const proto::TensorRef& ref) const {
  return !ref.has_arena() ||
         (ref.arena().arena() == local_->arena()->id() && ref.arena().host() == local_->host());
}

void RemoteChannel::FetchAsync(const proto::TensorRef& ref, Duration timeout, Done done) {
  if (cut_ && !Own(ref))
    if (auto status = cut_->Check(); !status.ok()) return done(std::move(status));
  if (local_->Near(ref)) return local_->FetchAsync(ref, timeout, std::move(done));
  absl::StatusOr<Reservation> reserved = local_->ReserveSlice(SizeOf(ref));
  if (!reserved.ok()) return done(reserved.status());
  auto room = std::make_shared<Reservation>(*std::move(reserved));
  endpoint_->Fetch(ref.arena(), room->bytes(), room, timeout,
                   [local = local_, room, done = std::move(done)](const absl::Status& status) {
                     if (!status.ok()) return done(status);
                     done(Adopt(*local, *room));
                   });
}

}  // namespace troupe::transport
