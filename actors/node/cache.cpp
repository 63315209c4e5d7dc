#include "actors/node/cache.hpp"

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "actors/core/call.hpp"
#include "actors/core/continuations.hpp"
#include "actors/interfaces/cluster_manager.hpp"
#include "base/wire_status.hpp"
#include "proto/local.pb.h"

namespace troupe::actors {

namespace {

using CacheSelf =
    CacheActor::extend<Hears<proto::Continue>, caf::reacts_to<proto::PeerUp, caf::strong_actor_ptr>,
                       Hears<proto::PeerLost>>;
using HostPromise = caf::typed_response_promise<proto::HostModel>;

proto::HostModel ReplyFor(const std::string& model, const absl::Status& status) {
  proto::HostModel reply;
  SetStatus(status, reply);
  reply.set_model_digest(model);
  return reply;
}

class Cache : public CacheSelf::base {
 public:
  Cache(caf::actor_config& config, CacheOptions options, ModelRepository& repository,
        PeerDirectory& directory)
      : CacheSelf::base(config),
        options_(std::move(options)),
        repository_(repository),
        directory_(directory) {}

  const char* name() const override { return "cache"; }

  behavior_type make_behavior() override {
    set_down_handler([this](caf::down_msg& down) { calls_.PeerDown(down.source); });
    directory_.Watch(options_.manager, system().message_types<ClusterManagerActor>(),
                     caf::actor_cast<PeerWatcherActor>(this));
    return {
        [this](const proto::FetchModel& fetch) { return Fetch(fetch.function()); },
        [this](const proto::PlaceModel& place) { return Place(place.function(), place.isolation_key()); },
        [this](const proto::DropModel& drop) {
          repository_.Disown(drop.model_digest(), drop.isolation_key());
        },
        [this](const proto::Continue& message) { continuations_.Resume(message); },
        [this](const proto::PeerUp&, const caf::strong_actor_ptr& peer) {
          manager_ = caf::actor_cast<ClusterManagerActor>(peer);
          monitor(manager_);
        },
        [this](const proto::PeerLost&) { manager_ = nullptr; },
    };
  }

  void on_exit() override {
    calls_.Clear();
    continuations_.Clear();
    fetches_.clear();
    manager_ = nullptr;
  }

 private:
  // A model on its way to the disk.
  struct Moving {
    std::vector<HostPromise> waiting;
    std::vector<std::string> objects;
    std::uint64_t bytes = 0;
  };

  HostPromise Fetch(const proto::FunctionRecord& function) {
    auto promise = make_response_promise<proto::HostModel>();
    const auto& model = function.model_digest();
    auto& moving = fetches_[model];
    moving.waiting.push_back(promise);
    if (moving.waiting.size() > 1) return promise;
    moving.objects = repository_.ObjectsOf(function);
    FetchMissing(model, 0);
    return promise;
  }

  void FetchMissing(const std::string& model, std::size_t next) {
    const auto& objects = fetches_.at(model).objects;
    while (next < objects.size() && repository_.Has(objects[next])) ++next;
    if (next == objects.size()) return Fetched(model, absl::OkStatus());
    FetchPart(model, objects[next], 0, [this, model, next] { FetchMissing(model, next + 1); });
  }

  void FetchPart(const std::string& model, const std::string& digest, std::uint64_t offset,
                 std::function<void()> then) {
    proto::FetchObject part;
    part.set_digest(digest);
    part.set_offset(offset);
    part.set_length(options_.part_bytes);
    Call<proto::FetchReply>(this, calls_, manager_, options_.fetch_timeout, std::move(part),
                            [this, model, digest, offset, then](absl::StatusOr<proto::FetchReply> reply) {
                              if (reply.ok() && reply->code() != 0) reply = StatusIn(*reply);
                              if (!reply.ok()) return Fetched(model, reply.status());
                              LoadPart(model, digest, offset, *reply, then);
                            });
  }

  void LoadPart(const std::string& model, const std::string& digest, std::uint64_t offset,
                const proto::FetchReply& reply, std::function<void()> then) {
    const auto release = reply.release();
    const auto total = reply.total();
    repository_.Load(reply.data(),
                     continuations_.Make<std::string>(this, [=, this](absl::StatusOr<std::string> bytes) {
                       if (release != 0 && manager_) {
                         proto::ReleaseFetched message;
                         message.set_release(release);
                         send(manager_, std::move(message));
                       }
                       if (!bytes.ok()) return Fetched(model, bytes.status());
                       if (bytes->empty() && total != 0)
                         return Fetched(model, absl::UnavailableError("an empty part of a model"));
                       KeepPart(model, digest, offset, std::move(*bytes), total, then);
                     }));
  }

  void KeepPart(const std::string& model, const std::string& digest, std::uint64_t offset, std::string bytes,
                std::uint64_t total, std::function<void()> then) {
    const auto next = offset + bytes.size();
    const bool last = next >= total;
    fetches_.at(model).bytes += bytes.size();
    // Another model with the same weights may be fetched at the same time.
    repository_.Receive(
        absl::StrCat("fetch-", model, "-", digest), offset, std::move(bytes), last, digest,
        continuations_.Make<std::uint64_t>(this, [=, this](absl::StatusOr<std::uint64_t> size) {
          if (!size.ok()) return Fetched(model, size.status());
          if (last) return then();
          FetchPart(model, digest, next, then);
        }));
  }

  void Fetched(const std::string& model, const absl::Status& status) {
    auto moving = std::move(fetches_.extract(model).mapped());
    auto reply = ReplyFor(model, status);
    reply.set_fetched_bytes(moving.bytes);
    for (auto& promise : moving.waiting) promise.deliver(reply);
  }

  HostPromise Place(const proto::FunctionRecord& function, const std::string& key) {
    auto promise = make_response_promise<proto::HostModel>();
    repository_.Adopt(
        function, key,
        continuations_.Make<proto::HostCopy>(
            this, [promise, model = function.model_digest()](absl::StatusOr<proto::HostCopy> copy) mutable {
              auto reply = ReplyFor(model, copy.status());
              if (copy.ok()) *reply.mutable_copy() = *std::move(copy);
              promise.deliver(std::move(reply));
            }));
    return promise;
  }

  const CacheOptions options_;
  ModelRepository& repository_;
  PeerDirectory& directory_;
  ClusterManagerActor manager_;
  PendingCalls calls_;
  Continuations continuations_;
  std::map<std::string, Moving> fetches_;
};

}  // namespace

CacheActor SpawnCache(caf::actor_system& system, CacheOptions options, ModelRepository& repository,
                      PeerDirectory& directory) {
  return caf::actor_cast<CacheActor>(
      system.spawn<Cache>(std::move(options), std::ref(repository), std::ref(directory)));
}

}  // namespace troupe::actors
