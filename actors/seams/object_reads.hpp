// OBJECT READS: ranges of objects that another process fetches from this one's repository. What it was given stays in
// the arena until it says that it has it, or for `release_after`. Owned by an actor: the manager, or a node's cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/core/continuations.hpp"
#include "actors/core/time.hpp"
#include "actors/seams/model_repository.hpp"
#include "base/wire_status.hpp"

namespace troupe::actors {

using FetchPromise = caf::typed_response_promise<proto::FetchReply>;

class ObjectReads {
 public:
  // The tick of the owner that brings a number to Release.
  static constexpr std::uint32_t kReleaseTick = 2;

  // `most`: ranges that are being read or were not released yet; more are refused with RESOURCE_EXHAUSTED.
  ObjectReads(ModelRepository& repository, Continuations& continuations, Duration release_after,
              std::size_t most)
      : repository_(repository), continuations_(continuations), release_after_(release_after), most_(most) {}

  // Part of an object that the repository has.
  template <class Self>
  FetchPromise Fetch(Self* self, const proto::FetchObject& part) {
    const auto promise = self->template make_response_promise<proto::FetchReply>();
    Read(self, part, promise);
    return promise;
  }
  template <class Self>
  void Read(Self* self, const proto::FetchObject& part, FetchPromise promise) {
    if (IsFull(promise)) return;
    repository_.Read(part, Answering(self, std::move(promise)));
  }
  // Part of an object of `total` bytes that is being received.
  template <class Self>
  void ReadReceived(Self* self, const std::string& upload, std::uint64_t total,
                    const proto::FetchObject& part, FetchPromise promise) {
    if (IsFull(promise)) return;
    repository_.ReadReceived(upload, total, part, Answering(self, std::move(promise)));
  }
  void Release(std::uint64_t release) {
    if (unreleased_.erase(release) == 1) repository_.Release(release);
  }

 private:
  bool IsFull(FetchPromise& promise) const {
    if (reading_ + unreleased_.size() < most_) return false;
    proto::FetchReply reply;
    SetStatus(absl::ResourceExhaustedError(absl::StrCat(most_,
                                                        " ranges of models are being fetched here: ask for "
                                                        "this one later or elsewhere")),
              reply);
    promise.deliver(std::move(reply));
    return true;
  }
  template <class Self>
  ModelRepository::Done<proto::FetchReply> Answering(Self* self, FetchPromise promise) {
    ++reading_;
    return continuations_.Make<proto::FetchReply>(
        self, [this, self, promise](absl::StatusOr<proto::FetchReply> reply) mutable {
          --reading_;
          if (!reply.ok()) {
            const auto status = reply.status();
            SetStatus(status, reply.emplace());
          }
          if (reply->release() != 0) {
            unreleased_.insert(reply->release());
            After(self, release_after_, MakeTick(kReleaseTick, reply->release()));
          }
          promise.deliver(*std::move(reply));
        });
  }

  ModelRepository& repository_;
  Continuations& continuations_;
  const Duration release_after_;
  const std::size_t most_;
  std::size_t reading_ = 0;
  std::set<std::uint64_t> unreleased_;
};

}  // namespace troupe::actors
