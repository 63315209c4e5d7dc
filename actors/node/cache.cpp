#include "actors/node/cache.hpp"

#include <caf/typed_event_based_actor.hpp>

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "actors/core/call.hpp"
#include "actors/core/continuations.hpp"
#include "actors/interfaces/cluster_manager.hpp"
#include "actors/node/relayed_ranges.hpp"
#include "actors/seams/object_reads.hpp"
#include "base/wire_status.hpp"
#include "proto/local.pb.h"

namespace troupe::actors {

namespace {

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
        directory_(directory),
        reads_(repository, continuations_, options_.release_after, options_.served),
        relayed_(reads_, options_.relay_patience),
        pulls_(options_.pulls, {repository, directory, relayed_}, options_.counts) {}

  const char* name() const override { return "cache"; }

  behavior_type make_behavior() override {
    set_down_handler([this](caf::down_msg& down) {
      calls_.PeerDown(down.source);
      pulls_.PeerDown(down.source);
    });
    directory_.Watch(options_.manager, system().message_types<ClusterManagerActor>(),
                     caf::actor_cast<PeerWatcherActor>(this));
    images_ = SpawnImagePuller(system(), options_.images, directory_);
    link_to(images_);
    return {
        [this](const proto::FetchModel& fetch) { return Fetch(fetch.function()); },
        [this](const proto::PlaceModel& place) { return Place(place.function(), place.isolation_key()); },
        [this](const proto::DropModel& drop) {
          repository_.Disown(drop.model_digest(), drop.isolation_key());
        },
        [this](const proto::FetchObject& part) {
          return repository_.Has(part.digest()) ? reads_.Fetch(this, part) : relayed_.Fetch(this, part);
        },
        [this](proto::PullImage& pull) { return delegate(images_, std::move(pull)); },
        [this](proto::SendImageCopy& send) { return delegate(images_, std::move(send)); },
        [this](const proto::ReleaseFetched& release) { reads_.Release(release.release()); },
        [this](const proto::Continue& message) {
          continuations_.Resume(message);
          pulls_.Resume(message);
        },
        [this](const proto::Tick& tick) {
          if (tick.what() == ObjectReads::kReleaseTick) return reads_.Release(tick.token());
          if (tick.what() == RelayedRanges::kGiveUpTick) return relayed_.GiveUp(tick.token());
          if (tick.what() == ModelPulls::kGoOnTick) return pulls_.GoOn(this, tick.token());
          if (tick.what() == ModelPulls::kBeatTick) return pulls_.Beat(this, tick.token());
          pulls_.StopAwaiting(this, tick.token());
        },
        [this](const proto::PeerUp& up, const caf::strong_actor_ptr& peer) {
          if (up.address() != options_.manager) return pulls_.NodeUp(this, up.address(), peer);
          manager_ = caf::actor_cast<ClusterManagerActor>(peer);
          monitor(manager_);
          pulls_.ManagerUp(manager_);
        },
        [this](const proto::PeerLost& lost) {
          if (lost.address() != options_.manager) return pulls_.NodeLost(this, lost.address());
          manager_ = nullptr;
          pulls_.ManagerLost();
        },
    };
  }

  void on_exit() override {
    calls_.Clear();
    continuations_.Clear();
    pulls_.Clear();
    relayed_.Clear();
    fetches_.clear();
    manager_ = nullptr;
    send_exit(images_, caf::exit_reason::user_shutdown);
    images_ = nullptr;
  }

 private:
  // A model on its way to the disk.
  struct Moving {
    std::vector<HostPromise> waiting;
    std::size_t open = 0;  // objects that have not come
    absl::Status status;
    proto::HostModel reply;
  };

  HostPromise Fetch(const proto::FunctionRecord& function) {
    auto promise = make_response_promise<proto::HostModel>();
    const auto& model = function.model_digest();
    auto& moving = fetches_[model];
    moving.waiting.push_back(promise);
    if (moving.waiting.size() > 1) return promise;
    std::vector<std::string> missing;
    for (auto& object : repository_.ObjectsOf(function))
      if (!repository_.Has(object)) missing.push_back(std::move(object));
    if (missing.empty()) {
      Fetched(model);
      return promise;
    }
    // Before the manager knows that this node is fetching them, and sends others here.
    for (const auto& object : missing) relayed_.Expect(object);
    proto::LocateModel locate;
    locate.set_model_digest(model);
    locate.set_node(options_.node);
    Call<proto::ModelPlaces>(this, calls_, manager_, options_.pulls.manager_timeout, std::move(locate),
                             [this, model, missing](const absl::StatusOr<proto::ModelPlaces>& places) {
                               Pull(model, missing, places);
                             });
    return promise;
  }

  void Pull(const std::string& model, const std::vector<std::string>& missing,
            const absl::StatusOr<proto::ModelPlaces>& places) {
    auto& moving = fetches_.at(model);
    moving.status = StatusIn(places);
    if (!moving.status.ok()) {
      for (const auto& object : missing) relayed_.Over(this, object, false);
      return Fetched(model);
    }
    moving.open = missing.size();
    for (const auto& object : missing)
      pulls_.Pull(this, model, object, *places, [this, model, object](ModelPulls::Result result) {
        Pulled(model, object, std::move(result));
      });
  }

  void Pulled(const std::string& model, const std::string& object, ModelPulls::Result result) {
    relayed_.Over(this, object, result.status.ok());
    auto& moving = fetches_.at(model);
    if (moving.status.ok()) moving.status = result.status;
    moving.reply.set_fetched_bytes(moving.reply.fetched_bytes() + result.bytes);
    for (auto& text : result.wrong) moving.reply.add_wrong(std::move(text));
    if (--moving.open == 0) Fetched(model);
  }

  void Fetched(const std::string& model) {
    auto moving = std::move(fetches_.extract(model).mapped());
    SetStatus(moving.status, moving.reply);
    moving.reply.set_model_digest(model);
    for (auto& promise : moving.waiting) promise.deliver(moving.reply);
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
  ImagePullerActor images_;
  PendingCalls calls_;
  Continuations continuations_;
  ObjectReads reads_;
  RelayedRanges relayed_;
  ModelPulls pulls_;
  std::map<std::string, Moving> fetches_;
};

}  // namespace

CacheActor SpawnCache(caf::actor_system& system, CacheOptions options, ModelRepository& repository,
                      PeerDirectory& directory) {
  return caf::actor_cast<CacheActor>(
      system.spawn<Cache>(std::move(options), std::ref(repository), std::ref(directory)));
}

}  // namespace troupe::actors
