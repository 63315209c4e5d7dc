// OBJECT TRANSFERS: models and blobs on their way to the manager's repository and out of it. Nothing is
// decided here. Owned by the cluster manager.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/core/continuations.hpp"
#include "actors/interfaces/cluster_manager.hpp"
#include "actors/seams/model_repository.hpp"
#include "actors/seams/object_reads.hpp"
#include "cluster/failure.hpp"

namespace troupe::actors {

class ObjectTransfers {
 public:
  static constexpr std::uint32_t kReleaseTick = ObjectReads::kReleaseTick;
  // What nodes fetch is bounded by the arena; this only bounds the table of it.
  static constexpr std::size_t kReads = 1024;

  // `release_after`: of a fetched part that was not released.
  ObjectTransfers(ModelRepository& repository, Continuations& continuations, Duration release_after)
      : repository_(repository),
        continuations_(continuations),
        reads_(repository, continuations, release_after, kReads) {}

  template <class Self>
  caf::typed_response_promise<proto::UploadReply> Receive(Self* self, proto::UploadChunk& chunk) {
    auto promise = self->template make_response_promise<proto::UploadReply>();
    repository_.Upload(std::move(chunk),
                       continuations_.Make<proto::UploadReply>(
                           self, [promise](absl::StatusOr<proto::UploadReply> reply) mutable {
                             if (!reply.ok()) reply = cluster::Failure<proto::UploadReply>(reply.status());
                             promise.deliver(*std::move(reply));
                           }));
    return promise;
  }
  template <class Self>
  caf::typed_response_promise<proto::FetchReply> Fetch(Self* self, const proto::FetchObject& part) {
    return reads_.Fetch(self, part);
  }
  void Release(std::uint64_t release) { reads_.Release(release); }
  template <class Self>
  caf::typed_response_promise<proto::RangeDigest> Digest(Self* self, const proto::DigestRange& range) {
    auto promise = self->template make_response_promise<proto::RangeDigest>();
    repository_.Digest(range, continuations_.Make<proto::RangeDigest>(
                                  self, [promise](absl::StatusOr<proto::RangeDigest> reply) mutable {
                                    if (!reply.ok())
                                      reply = cluster::Failure<proto::RangeDigest>(reply.status());
                                    promise.deliver(*std::move(reply));
                                  }));
    return promise;
  }
  template <class Self>
  caf::typed_response_promise<proto::StoreBlobReply> Keep(Self* self, const proto::StoreBlob& blob) {
    auto promise = self->template make_response_promise<proto::StoreBlobReply>();
    repository_.Keep(
        blob.data().data(),
        continuations_.Make<std::string>(self, [promise](const absl::StatusOr<std::string>& digest) mutable {
          auto reply = cluster::Failure<proto::StoreBlobReply>(digest.status());
          if (digest.ok()) reply.set_digest(*digest);
          promise.deliver(std::move(reply));
        }));
    return promise;
  }

  template <class Self>
  void Import(Self* self, const ModelFile& file, const std::string& client,
              std::function<void(absl::StatusOr<proto::FunctionRecord>)> done) {
    repository_.Import(file, client, continuations_.Make<proto::FunctionRecord>(self, std::move(done)));
  }
  // The imports of one file, or all of them for an empty digest.
  [[nodiscard]] proto::AdminReply Imports(const std::string& onnx_digest) const {
    proto::AdminReply reply;
    for (auto& status : repository_.Imports(onnx_digest)) *reply.add_imports() = std::move(status);
    if (!reply.imports().empty() || onnx_digest.empty()) return reply;
    return cluster::Failure<proto::AdminReply>(absl::NotFoundError(
        absl::StrCat("no import of the file '", onnx_digest.substr(0, 64),
                     "' waits or runs: it has ended, or no deployment of the file was asked for")));
  }
  template <class Self>
  void Collect(Self* self, std::set<std::string> kept, Duration unused_for,
               std::function<void(absl::StatusOr<Bytes>)> done) {
    repository_.Collect(std::move(kept), unused_for, continuations_.Make<Bytes>(self, std::move(done)));
  }

 private:
  ModelRepository& repository_;
  Continuations& continuations_;
  ObjectReads reads_;
};

}  // namespace troupe::actors
