#include "actors/node/image_puller.hpp"

#include <caf/typed_event_based_actor.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "actors/core/call.hpp"
#include "actors/core/time.hpp"
#include "actors/interfaces/peer_watcher.hpp"
#include "actors/node/state_store.hpp"
#include "base/wire_status.hpp"
#include "proto/cluster.pb.h"

namespace troupe::actors {

namespace {

using ImageNodeActor =
    Interface<Asks<proto::FetchImage, proto::FetchReply>, Asks<proto::CopyImage, proto::CopiedImage>>;
using PullerSelf =
    ImagePullerActor::extend<Hears<proto::Tick>, caf::reacts_to<proto::PeerUp, caf::strong_actor_ptr>,
                             Hears<proto::PeerLost>>;
using PulledPromise = caf::typed_response_promise<proto::PulledImage>;
using CopiedPromise = caf::typed_response_promise<proto::CopiedImage>;

constexpr std::uint64_t kPart = StateStore::kLongestPart;

class ImagePuller : public PullerSelf::base {
 public:
  ImagePuller(caf::actor_config& config, ImagePullTerms terms, PeerDirectory& directory)
      : PullerSelf::base(config), terms_(terms), directory_(directory) {}
  const char* name() const override { return "image_puller"; }

  behavior_type make_behavior() override {
    set_down_handler([this](caf::down_msg& down) { calls_.PeerDown(down.source); });
    return {
        [this](proto::PullImage& wish) { return Pull(wish); },
        [this](proto::SendImageCopy& wish) { return Send(wish); },
        [this](const proto::Tick& tick) {
          tick.what() == kReachTick ? StopAwaiting(tick.token()) : ForgetIdle();
        },
        [this](const proto::PeerUp& up, const caf::strong_actor_ptr& peer) { Up(up.address(), peer); },
        [this](const proto::PeerLost& lost) {
          if (const auto node = nodes_.find(lost.address()); node != nodes_.end())
            node->second.actor = nullptr;
        },
    };
  }

  void on_exit() override {
    calls_.Clear();
    pulls_.clear();
    copies_.clear();
    nodes_.clear();
  }

 private:
  enum : std::uint32_t { kReachTick = 1, kIdleTick = 2 };
  struct OnePull {
    proto::PullImage wish;
    PulledPromise promise;
    std::string file;                           // what has come in order
    std::map<std::uint64_t, std::string> here;  // by offset: what comes behind it
    std::uint64_t total = 0;                    // 0: not known yet
    std::uint64_t asked = 0;
    std::size_t open = 0;  // parts that are on their way
    bool begun = false;
  };
  struct OneCopy {
    proto::SendImageCopy wish;
    CopiedPromise promise;
    bool begun = false;
  };
  struct Node {
    ImageNodeActor actor;
    std::size_t uses = 0;  // pulls and copies
    Time idle_since{};
  };

  PulledPromise Pull(proto::PullImage& wish) {
    const auto id = ++last_;
    auto& pull = pulls_[id];
    pull.promise = make_response_promise<proto::PulledImage>();
    pull.wish = std::move(wish);
    const auto promise = pull.promise;
    if (Use(pull.wish.address(), id)) Begin(id);
    return promise;
  }

  CopiedPromise Send(proto::SendImageCopy& wish) {
    const auto id = ++last_;
    auto& copy = copies_[id];
    copy.promise = make_response_promise<proto::CopiedImage>();
    copy.wish = std::move(wish);
    const auto promise = copy.promise;
    if (Use(copy.wish.address(), id)) BeginCopy(id);
    return promise;
  }

  // False: the node is not connected yet.
  bool Use(const std::string& address, std::uint64_t id) {
    const auto [node, is_new] = nodes_.try_emplace(address);
    ++node->second.uses;
    if (is_new)
      directory_.Watch(address, system().message_types<ImageNodeActor>(),
                       caf::actor_cast<PeerWatcherActor>(this));
    if (node->second.actor) return true;
    After(this, terms_.reach_timeout, MakeTick(kReachTick, id));
    return false;
  }

  void Up(const std::string& address, const caf::strong_actor_ptr& peer) {
    const auto node = nodes_.find(address);
    if (node == nodes_.end()) return;
    node->second.actor = caf::actor_cast<ImageNodeActor>(peer);
    monitor(node->second.actor);
    std::vector<std::uint64_t> waiting;
    for (const auto& [id, pull] : pulls_)
      if (pull.wish.address() == address && !pull.begun) waiting.push_back(id);
    for (const auto id : waiting) Begin(id);
    waiting.clear();
    for (const auto& [id, copy] : copies_)
      if (copy.wish.address() == address && !copy.begun) waiting.push_back(id);
    for (const auto id : waiting) BeginCopy(id);
  }

  void StopAwaiting(std::uint64_t id) {
    if (const auto copy = copies_.find(id); copy != copies_.end() && !copy->second.begun)
      return EndCopy(id, absl::UnavailableError(absl::StrCat("the node at ", copy->second.wish.address(),
                                                             " cannot be reached")));
    const auto pull = pulls_.find(id);
    if (pull != pulls_.end() && !pull->second.begun)
      End(id, absl::UnavailableError(absl::StrCat("the node at ", pull->second.wish.address(),
                                                  " cannot be reached to read the state '",
                                                  pull->second.wish.image(), "'")));
  }

  void Begin(std::uint64_t id) {
    pulls_.at(id).begun = true;
    Ask(id);
  }

  void BeginCopy(std::uint64_t id) {
    auto& copy = copies_.at(id);
    copy.begun = true;
    Call<proto::CopiedImage>(
        this, calls_, nodes_.at(copy.wish.address()).actor, terms_.copy_timeout, copy.wish.copy(),
        [this, id](const absl::StatusOr<proto::CopiedImage>& reply) { EndCopy(id, StatusIn(reply)); });
  }

  void EndCopy(std::uint64_t id, const absl::Status& status) {
    auto copy = std::move(copies_.extract(id).mapped());
    proto::CopiedImage reply;
    SetStatus(status, reply);
    copy.promise.deliver(std::move(reply));
    Unuse(copy.wish.address());
  }

  // The first part says how large the file is.
  void AskMore(std::uint64_t id) {
    while (true) {
      const auto pull = pulls_.find(id);
      if (pull == pulls_.end() || pull->second.open >= terms_.window ||
          pull->second.asked >= pull->second.total)
        return;
      Ask(id);
    }
  }

  void Ask(std::uint64_t id) {
    auto& pull = pulls_.at(id);
    proto::FetchImage part;
    part.set_image(pull.wish.image());
    part.set_offset(pull.asked);
    part.set_length(kPart);
    pull.asked += kPart;
    ++pull.open;
    Call<proto::FetchReply>(this, calls_, nodes_.at(pull.wish.address()).actor, terms_.part_timeout, part,
                            [this, id, offset = part.offset()](absl::StatusOr<proto::FetchReply> reply) {
                              Arrived(id, offset, std::move(reply));
                            });
  }

  static absl::Status Check(const OnePull& pull, std::uint64_t offset,
                            const absl::StatusOr<proto::FetchReply>& reply) {
    if (!reply.ok()) return reply.status();
    if (const auto status = StatusIn(*reply); !status.ok()) return status;
    const auto total = reply->total();
    if (total > pull.wish.most_bytes())
      return absl::ResourceExhaustedError(absl::StrCat("the file of the state '", pull.wish.image(), "' has ",
                                                       total, " bytes, and ", pull.wish.most_bytes(),
                                                       " are the most that it may have"));
    const auto wanted = offset < total ? std::min(kPart, total - offset) : 0;
    if (wanted == 0 || reply->data().inlined().size() != wanted || (pull.total != 0 && total != pull.total))
      return absl::DataLossError(absl::StrCat("of the state '", pull.wish.image(), "' came ",
                                              reply->data().inlined().size(), " bytes of ", total, ", and ",
                                              wanted, " bytes from byte ", offset, " on were asked for"));
    return absl::OkStatus();
  }

  void Arrived(std::uint64_t id, std::uint64_t offset, absl::StatusOr<proto::FetchReply> reply) {
    const auto found = pulls_.find(id);
    if (found == pulls_.end()) return;
    auto& pull = found->second;
    if (const auto status = Check(pull, offset, reply); !status.ok()) return End(id, status);
    --pull.open;
    pull.total = reply->total();
    pull.here[offset] = std::move(*reply->mutable_data()->mutable_inlined());
    for (auto next = pull.here.find(pull.file.size()); next != pull.here.end();
         next = pull.here.find(pull.file.size())) {
      pull.file += next->second;
      pull.here.erase(next);
    }
    if (pull.file.size() == pull.total) return End(id, absl::OkStatus());
    AskMore(id);
  }

  void End(std::uint64_t id, const absl::Status& status) {
    auto pull = std::move(pulls_.extract(id).mapped());
    proto::PulledImage reply;
    SetStatus(status, reply);
    if (status.ok()) reply.set_file(std::move(pull.file));
    pull.promise.deliver(std::move(reply));
    Unuse(pull.wish.address());
  }

  void Unuse(const std::string& address) {
    auto& node = nodes_.at(address);
    if (--node.uses > 0) return;
    node.idle_since = Now(this);
    After(this, terms_.keep, MakeTick(kIdleTick));
  }

  void ForgetIdle() {
    for (auto node = nodes_.begin(); node != nodes_.end();) {
      const auto one = node++;
      if (one->second.uses > 0 || Now(this) - one->second.idle_since < terms_.keep) continue;
      directory_.Forget(one->first, caf::actor_cast<PeerWatcherActor>(this));
      nodes_.erase(one);
    }
  }

  const ImagePullTerms terms_;
  PeerDirectory& directory_;
  PendingCalls calls_;
  std::map<std::string, Node> nodes_;  // by address
  std::map<std::uint64_t, OnePull> pulls_;
  std::map<std::uint64_t, OneCopy> copies_;
  std::uint64_t last_ = 0;
};

}  // namespace

ImagePullerActor SpawnImagePuller(caf::actor_system& system, ImagePullTerms terms, PeerDirectory& directory) {
  return caf::actor_cast<ImagePullerActor>(system.spawn<ImagePuller>(terms, std::ref(directory)));
}

}  // namespace troupe::actors
