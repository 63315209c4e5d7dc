// IMAGE ORDERS: carries out what the node decides of images of states: what is read, kept and dropped here, and what comes from
// another node. Owned by the node controller, in whose thread everything happens.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "actors/core/call.hpp"
#include "actors/interfaces/cache.hpp"
#include "actors/node/state_pulls.hpp"
#include "actors/node/state_store.hpp"
#include "base/wire_status.hpp"
#include "node/effects.hpp"

namespace troupe::actors {

template <class Self>
class ImageOrders {
 public:
  using Hear = std::function<void(node::Event)>;
  using Answer = std::function<void(node::Ask, proto::FetchReply)>;

  ImageOrders(Self* self, const CacheActor& cache, PendingCalls& calls, StateStoreOptions options, Hear hear,
              Answer answer)
      : self_(self),
        cache_(cache),
        calls_(calls),
        store_(std::move(options)),
        pulls_(store_, calls),
        hear_(std::move(hear)),
        answer_(std::move(answer)) {}

  void Do(node::LoadImage& load) {
    const auto loaded = [this, function = load.function](absl::StatusOr<node::ImagePtr> image,
                                                         std::vector<std::string> sequences) {
      hear_(node::ImageLoaded{function, std::move(image), std::move(sequences)});
    };
    if (load.with_sequences)
      return store_.LoadWithSequences(self_, load.function, std::move(load.specs), loaded);
    store_.Load(self_, load.function, std::move(load.specs),
                [loaded](absl::StatusOr<node::ImagePtr> image) { loaded(std::move(image), {}); });
  }
  void Do(node::SaveImage& save) {
    store_.Save(self_, std::move(save.image),
                [this, batch = save.batch](absl::StatusOr<node::ImagePtr> image) {
                  hear_(node::ImageSaved{batch, std::move(image)});
                });
  }
  void Do(node::KeepImage& keep) { store_.Keep(keep.image); }
  void Do(node::RestoreImage& restore) { store_.Restore(self_, restore.function); }
  void Do(node::UnloadImage& unload) { store_.Unload(self_, unload.function); }
  void Do(node::ForgetImage& forget) { store_.Forget(self_, forget.function); }
  void Do(node::ReadImage& read) {
    store_.Read(self_, read.wish,
                [this, ask = read.ask](proto::FetchReply part) { answer_(ask, std::move(part)); });
  }
  void Do(node::PullImages& pull) {
    const auto copy = pull.copy;
    pulls_.Pull(self_, cache_, std::move(pull),
                [this, copy](const std::string& digest, const absl::Status& status) {
                  hear_(node::ImagesPulled{digest, status, copy});
                });
  }
  void Do(node::SendCopy& send) {
    proto::SendImageCopy message;
    message.set_address(std::move(send.address));
    *message.mutable_copy() = std::move(send.copy);
    Call<proto::CopiedImage>(self_, calls_, cache_, kCopyTimeout, std::move(message),
                             [this, number = send.number](const absl::StatusOr<proto::CopiedImage>& reply) {
                               hear_(node::CopyEnded{number, StatusIn(reply)});
                             });
  }

  void Resume(const proto::Continue& message) { store_.Resume(message); }
  // At the actor's end.
  void Clear() { store_.Clear(); }

 private:
  // Of one copy on another node: runs whose images have to be there wait no longer for it.
  static constexpr Duration kCopyTimeout = std::chrono::seconds(10);

  Self* const self_;
  const CacheActor& cache_;
  PendingCalls& calls_;
  StateStore store_;
  StatePulls pulls_;
  const Hear hear_;
  const Answer answer_;
};

}  // namespace troupe::actors
