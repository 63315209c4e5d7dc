#include "actors/node/cache.hpp"

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "actors/core/call.hpp"
#include "actors/core/continuations.hpp"
#include "actors/core/time.hpp"
#include "actors/interfaces/cluster_manager.hpp"
#include "proto/local.pb.h"

namespace troupe::actors {

namespace {

using CacheSelf =
    CacheActor::extend<Hears<proto::Continue>, Hears<proto::Tick>,
                       caf::reacts_to<proto::PeerUp, caf::strong_actor_ptr>, Hears<proto::PeerLost>>;
using HostPromise = caf::typed_response_promise<proto::HostModel>;

struct Wish {
  proto::FunctionRecord function;
  std::vector<HostPromise> waiting;
  proto::HostCopy copy;
  bool held = false;
};

class Cache : public CacheSelf::base {
 public:
  Cache(caf::actor_config& config, CacheOptions options, ModelRepository& repository,
        PeerDirectory& directory)
      : CacheSelf::base(config),
        options_(std::move(options)),
        repository_(repository),
        directory_(directory),
        table_(options_.limits) {}

  const char* name() const override { return "cache"; }

  behavior_type make_behavior() override {
    set_down_handler([this](caf::down_msg& down) { calls_.PeerDown(down.source); });
    directory_.Watch(options_.manager, system().message_types<ClusterManagerActor>(),
                     caf::actor_cast<PeerWatcherActor>(this));
    return {
        [this](proto::AdoptModel& adopt) { return Adopt(adopt); },
        [this](const proto::DisownModel& disown) { Disown(disown.model_digest()); },
        [this](const proto::Continue& message) { continuations_.Resume(message); },
        [this](const proto::Tick&) {
          armed_ = Time::max();
          Decide();
        },
        [this](const proto::PeerUp&, const caf::strong_actor_ptr& peer) {
          manager_ = caf::actor_cast<ClusterManagerActor>(peer);
          monitor(manager_);
          Decide();
        },
        [this](const proto::PeerLost&) { manager_ = nullptr; },
    };
  }

  void on_exit() override {
    continuations_.Clear();
    wishes_.clear();
    manager_ = nullptr;
  }

 private:
  HostPromise Adopt(const proto::AdoptModel& adopt) {
    auto promise = make_response_promise<proto::HostModel>();
    const auto& function = adopt.function();
    const auto& digest = function.model_digest();
    auto& wish = wishes_[digest];
    wish.function = function;
    if (wish.held) {
      Answer({promise}, wish, absl::OkStatus());
      return promise;
    }
    const auto status = table_.Want(digest, Bytes(function.weights_bytes() + function.model_bytes()));
    wish.waiting.push_back(promise);
    if (!status.ok()) {
      Fail(digest, status);
    } else {
      Decide();
    }
    return promise;
  }

  void Disown(const std::string& digest) {
    table_.Unwant(digest);
    Decide();
  }

  // Starts the fetches and drops that the table asks for, and arms its next retry.
  void Decide() {
    for (const auto& action : table_.Decide(Now(this))) {
      if (action.kind == node::CacheActionKind::kFetch) {
        Fetch(action.model);
      } else {
        repository_.Disown(action.model);
        wishes_.erase(action.model);
        table_.DropDone(action.model);
      }
    }
    const auto due = table_.NextDue();
    if (due < armed_) {
      armed_ = due;
      After(this, due - Now(this), proto::Tick());
    }
  }

  // The model's objects, unless the disk has them, then the place in the host region.
  void Fetch(const std::string& model) {
    const auto it = wishes_.find(model);
    if (it == wishes_.end())
      return Fetched(model, absl::CancelledError("nobody asks for this model any more"));
    FetchMissing(model, repository_.ObjectsOf(it->second.function), 0);
  }

  void FetchMissing(const std::string& model, const std::vector<std::string>& objects, std::size_t next) {
    while (next < objects.size() && repository_.Has(objects[next])) ++next;
    if (next == objects.size()) return Place(model);
    FetchPart(model, objects[next], 0,
              [this, model, objects, next] { FetchMissing(model, objects, next + 1); });
  }

  void FetchPart(const std::string& model, const std::string& digest, std::uint64_t offset,
                 std::function<void()> then) {
    proto::FetchObject part;
    part.set_digest(digest);
    part.set_offset(offset);
    part.set_length(options_.part_bytes);
    Call<proto::FetchReply>(this, calls_, manager_, options_.fetch_timeout, std::move(part),
                            [this, model, digest, offset, then](absl::StatusOr<proto::FetchReply> reply) {
                              if (reply.ok() && reply->code() != 0)
                                reply = absl::Status(static_cast<absl::StatusCode>(reply->code()),
                                                     reply->message());
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
                         return Fetched(model, absl::DataLossError("an empty part of a model"));
                       KeepPart(model, digest, offset, std::move(*bytes), total, then);
                     }));
  }

  void KeepPart(const std::string& model, const std::string& digest, std::uint64_t offset, std::string bytes,
                std::uint64_t total, std::function<void()> then) {
    const auto next = offset + bytes.size();
    const bool last = next >= total;
    repository_.Receive(
        absl::StrCat("fetch-", digest), offset, std::move(bytes), last, digest,
        continuations_.Make<std::uint64_t>(this, [=, this](absl::StatusOr<std::uint64_t> size) {
          if (!size.ok()) return Fetched(model, size.status());
          if (last) return then();
          FetchPart(model, digest, next, then);
        }));
  }

  void Place(const std::string& model) {
    const auto it = wishes_.find(model);
    if (it == wishes_.end()) return Fetched(model, absl::CancelledError("disowned while it was fetched"));
    repository_.Adopt(it->second.function, continuations_.Make<proto::HostCopy>(
                                               this, [this, model](absl::StatusOr<proto::HostCopy> copy) {
                                                 const auto wish = wishes_.find(model);
                                                 if (copy.ok() && wish != wishes_.end())
                                                   wish->second.copy = *copy;
                                                 Fetched(model, copy.status());
                                               }));
  }

  void Fetched(const std::string& model, const absl::Status& status) {
    const auto it = wishes_.find(model);
    Bytes actual;
    if (it != wishes_.end() && status.ok())
      actual = Bytes(it->second.copy.model().length() + it->second.copy.weights().length());
    table_.FetchDone(model, status, actual, Now(this));
    if (it != wishes_.end()) {
      if (status.ok()) {
        it->second.held = true;
        Answer(std::exchange(it->second.waiting, {}), it->second, status);
      } else if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) {
        // What a retry may mend (the manager is away) keeps its askers waiting; the rest they learn at once.
        Fail(model, status);
      }
    }
    Decide();
  }

  void Fail(const std::string& model, const absl::Status& status) {
    const auto it = wishes_.find(model);
    auto waiting = std::exchange(it->second.waiting, {});
    Answer(std::move(waiting), it->second, status);
    wishes_.erase(it);
    table_.Unwant(model);
  }

  static void Answer(std::vector<HostPromise> waiting, const Wish& wish, const absl::Status& status) {
    proto::HostModel reply;
    reply.set_code(static_cast<int>(status.code()));
    reply.set_message(std::string(status.message()));
    reply.set_model_digest(wish.function.model_digest());
    if (status.ok()) *reply.mutable_copy() = wish.copy;
    for (auto& promise : waiting) promise.deliver(reply);
  }

  const CacheOptions options_;
  ModelRepository& repository_;
  PeerDirectory& directory_;
  node::CacheTable table_;
  ClusterManagerActor manager_;
  PendingCalls calls_;
  Continuations continuations_;
  std::map<std::string, Wish> wishes_;
  Time armed_ = Time::max();
};

}  // namespace

CacheActor SpawnCache(caf::actor_system& system, CacheOptions options, ModelRepository& repository,
                      PeerDirectory& directory) {
  return caf::actor_cast<CacheActor>(
      system.spawn<Cache>(std::move(options), std::ref(repository), std::ref(directory)));
}

}  // namespace troupe::actors
