// STATE PULLS: images of states that another node gave up, on their way to this node's disk: the cache brings the text of each
// file, the state store checks and keeps it. Owned by the node controller, in whose thread everything happens.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "actors/core/call.hpp"
#include "actors/interfaces/cache.hpp"
#include "actors/node/state_store.hpp"
#include "base/wire_status.hpp"
#include "node/effects.hpp"

namespace troupe::actors {

class StatePulls {
 public:
  using Done = std::function<void(const std::string& digest, const absl::Status& status)>;

  StatePulls(StateStore& store, PendingCalls& calls) : store_(store), calls_(calls) {}

  // `done` is called once, after the last image is durable or none is on its way any more.
  template <class Self>
  void Pull(Self* self, const CacheActor& cache, node::PullImages wish, Done done) {
    auto all = std::make_shared<All>(All{std::move(wish), std::move(done)});
    // One more, so that it does not end before all have begun.
    all->open = 1;
    for (std::size_t i = 0; i < kAtOnce; ++i) Next(self, cache, all);
    Ended(self, cache, all, absl::OkStatus());
  }

 private:
  static constexpr std::size_t kAtOnce = 4;
  // An image, which may have 2 GiB, has to come in this time; the cache bounds the time of each of its parts as well.
  static constexpr Duration kTimeout = std::chrono::minutes(5);

  struct All {
    node::PullImages wish;
    Done done;
    std::size_t next = 0;
    std::size_t open = 0;
    absl::Status status{};
  };
  using AllPtr = std::shared_ptr<All>;

  template <class Self>
  void Next(Self* self, const CacheActor& cache, const AllPtr& all) {
    if (!all->status.ok() || all->next == all->wish.images.size()) return;
    const auto at = all->next++;
    ++all->open;
    const auto& image = all->wish.images[at];
    proto::PullImage pull;
    pull.set_address(all->wish.address);
    pull.set_image(image.image);
    pull.set_most_bytes(image.most.count());
    Call<proto::PulledImage>(
        self, calls_, cache, kTimeout, std::move(pull),
        [this, self, cache, all, at](absl::StatusOr<proto::PulledImage> pulled) {
          const auto status = StatusIn(pulled);
          if (!status.ok()) return Ended(self, cache, all, status);
          auto& image = all->wish.images[at];
          store_.Import(
              self, image.image, std::move(image.specs), std::move(*pulled->mutable_file()),
              [this, self, cache, all](const absl::Status& kept) { Ended(self, cache, all, kept); });
        });
  }
  template <class Self>
  void Ended(Self* self, const CacheActor& cache, const AllPtr& all, const absl::Status& status) {
    all->status.Update(status);
    --all->open;
    Next(self, cache, all);
    if (all->open == 0) all->done(all->wish.digest, all->status);
  }

  StateStore& store_;
  PendingCalls& calls_;
};

}  // namespace troupe::actors
