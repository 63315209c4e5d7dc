// The cluster manager as keeper of objects: models and blobs on their way in and out.
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
                                 After(this, options_.release_after, MakeTick(kRelease, reply->release()));
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

void ClusterManager::CollectObjects() {
  if (Now(this) - last_collected_ < options_.collect_every) return;
  last_collected_ = Now(this);
  repository_.Collect(
      catalogue_.Objects(), options_.collect_unused_for,
      continuations_.Make<Bytes>(this, [this](const absl::StatusOr<Bytes>& removed) {
        if (!removed.ok()) {
          Tell("manager", "objects-kept", std::string(removed.status().message()));
        } else if (*removed > Bytes()) {
          Tell("manager", "objects-removed",
               absl::StrCat(FormatBytes(*removed), " that no function and no run refers to any more"));
        }
      }));
}

}  // namespace troupe::actors
