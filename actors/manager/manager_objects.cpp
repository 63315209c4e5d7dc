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

RunPromise ClusterManager::Record(const proto::CommitStep& command) {
  auto promise = make_response_promise<proto::RunReply>();
  if (const auto status = catalogue_.runs().ValidateCommit(command.run()); !status.ok()) {
    Deliver(promise, Failure<proto::RunReply>(status));
    return promise;
  }
  if (catalogue_.runs().HasStep(command.run(), command.step())) {
    Deliver(promise, RunAnswer(command.run()));  // its answer was lost: what was acknowledged stays
    return promise;
  }
  auto stamped = command;
  stamped.set_unix_ns(options_.unix_now());
  return CommitRun(promise, stamped, command.run());
}

RunPromise ClusterManager::Record(const proto::FinishRun& command) {
  auto promise = make_response_promise<proto::RunReply>();
  EndRun(command, [this, promise, run = command.run()](const absl::Status& status) mutable {
    Deliver(promise, status.ok() ? RunAnswer(run) : Failure<proto::RunReply>(status));
  });
  return promise;
}

void ClusterManager::EndRun(const proto::FinishRun& command, std::function<void(absl::Status)> done) {
  auto stamped = command;
  stamped.set_unix_ns(options_.unix_now());
  const auto begun = run_links_.BeginEnd(command.run(), [this, stamped, done] {
    const auto& run = stamped.run();
    const auto* known = catalogue_.runs().Find(run);
    auto settle = [this, run, done](const absl::Status& status) {
      done(status);
      run_links_.EndSettled(run);
    };
    if (known == nullptr) return settle(absl::NotFoundError(absl::StrCat("no run '", run, "' was started")));
    if (RunEnded(known->state())) return settle(absl::OkStatus());
    Commit(catalogue_.BatchFor(stamped), [this, stamped, settle](const absl::Status& status) {
      if (status.ok()) catalogue_.Apply(stamped);
      settle(status);
      if (auto surplus = catalogue_.TakeSurplusRuns(); !surplus.empty())
        Commit(std::move(surplus), [](const absl::Status&) {});
    });
  });
  if (!begun.ok()) done(begun);
}

template <class Command>
RunPromise ClusterManager::CommitRun(RunPromise promise, const Command& command, const std::string& run) {
  Commit(catalogue_.BatchFor(command), [this, promise, command, run](const absl::Status& status) mutable {
    if (!status.ok()) return Deliver(promise, Failure<proto::RunReply>(status));
    catalogue_.Apply(command);
    Deliver(promise, RunAnswer(run));
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

}  // namespace troupe::actors
