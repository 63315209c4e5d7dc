// The cluster manager as keeper of objects: models and blobs on their way in and out, and the run log.
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "actors/manager/cluster_manager_actor.hpp"

namespace troupe::actors {

caf::typed_response_promise<proto::UploadReply> ClusterManager::Upload(proto::UploadChunk& chunk) {
  auto promise = make_response_promise<proto::UploadReply>();
  const auto received = chunk.offset() + chunk.data().size();
  repository_.Receive(absl::StrCat("upload-", chunk.upload()), chunk.offset(),
                      std::move(*chunk.mutable_data()), chunk.last(), chunk.digest(),
                      continuations_.Make<std::uint64_t>(
                          this, [promise, received](const absl::StatusOr<std::uint64_t>& size) mutable {
                            auto reply = Failure<proto::UploadReply>(size.status());
                            reply.set_received(received);
                            Deliver(promise, std::move(reply));
                          }));
  return promise;
}

caf::typed_response_promise<proto::FetchReply> ClusterManager::Fetch(const proto::FetchObject& part) {
  auto promise = make_response_promise<proto::FetchReply>();
  repository_.Read(part, continuations_.Make<proto::FetchReply>(
                             this, [this, promise](absl::StatusOr<proto::FetchReply> reply) mutable {
                               if (!reply.ok())
                                 return Deliver(promise, Failure<proto::FetchReply>(reply.status()));
                               if (reply->release() != 0) {
                                 unreleased_.insert(reply->release());
                                 auto tick = MakeTick(kRelease);
                                 tick.set_token(reply->release());
                                 After(this, options_.release_after, tick);
                               }
                               Deliver(promise, std::move(*reply));
                             }));
  return promise;
}

caf::typed_response_promise<proto::StoreBlobReply> ClusterManager::Keep(const proto::StoreBlob& blob) {
  auto promise = make_response_promise<proto::StoreBlobReply>();
  repository_.Keep(
      blob.data().data(),
      continuations_.Make<std::string>(this, [promise](const absl::StatusOr<std::string>& digest) mutable {
        auto reply = Failure<proto::StoreBlobReply>(digest.status());
        if (digest.ok()) reply.set_digest(*digest);
        Deliver(promise, std::move(reply));
      }));
  return promise;
}

RunPromise ClusterManager::Start(proto::StartRun& command) {
  auto promise = make_response_promise<proto::RunReply>();
  const auto* workflow = catalogue_.workflows().Find(command.workflow(), command.version());
  auto status = catalogue_.runs().ValidateStart(command);
  if (workflow == nullptr)
    status = absl::NotFoundError(absl::StrCat("there is no workflow '", command.workflow(), "'"));
  if (!status.ok()) {
    Deliver(promise, Failure<proto::RunReply>(status));
    return promise;
  }
  command.set_version(workflow->spec().version());
  command.set_unix_ns(options_.unix_now());
  if (catalogue_.runs().Find(command.run()) != nullptr) {
    Deliver(promise, RunAnswer(command.run()));
    return promise;
  }
  return CommitRun(promise, command, command.run());
}

template <class Command>
RunPromise ClusterManager::Record(const Command& command, const std::string& run) {
  auto promise = make_response_promise<proto::RunReply>();
  if (const auto status = catalogue_.runs().ValidateCommit(run); !status.ok()) {
    Deliver(promise, Failure<proto::RunReply>(status));
    return promise;
  }
  auto stamped = command;
  stamped.set_unix_ns(options_.unix_now());
  return CommitRun(promise, stamped, run);
}

template <class Command>
RunPromise ClusterManager::CommitRun(RunPromise promise, const Command& command, const std::string& run) {
  Commit(catalogue_.BatchFor(command), [this, promise, command, run](const absl::Status& status) mutable {
    if (!status.ok()) return Deliver(promise, Failure<proto::RunReply>(status));
    catalogue_.Apply(command);
    Deliver(promise, RunAnswer(run));
    if (auto surplus = catalogue_.TakeSurplusRuns(); !surplus.empty())
      Commit(std::move(surplus), [](const absl::Status&) {});
  });
  return promise;
}

proto::RunReply ClusterManager::RunAnswer(const std::string& run) const {
  proto::RunReply reply;
  if (const auto* record = catalogue_.runs().Find(run)) {
    *reply.mutable_run() = *record;
    if (const auto* workflow =
            catalogue_.workflows().Find(record->start().workflow(), record->start().version()))
      *reply.mutable_workflow() = *workflow;
  }
  return reply;
}

// The behaviour, in another source, asks for these two.
template RunPromise ClusterManager::Record(const proto::CommitStep&, const std::string&);
template RunPromise ClusterManager::Record(const proto::FinishRun&, const std::string&);

}  // namespace troupe::actors
