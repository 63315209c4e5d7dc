#include "actors/client/manager_client.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "actors/core/call.hpp"
#include "actors/core/inbox.hpp"
#include "actors/core/time.hpp"
#include "actors/interfaces/cluster_manager.hpp"
#include "base/digest.hpp"
#include "base/wire_status.hpp"
#include "proto/local.pb.h"

namespace troupe::actors {

namespace {

constexpr std::size_t kChunk = 1u << 20;
enum : std::uint32_t { kGiveUp = 1 };
constexpr Duration kChunkTimeout = std::chrono::seconds(30);

using AgentActor = Interface<Hears<proto::Job>, Hears<proto::Tick>,
                             caf::reacts_to<proto::PeerUp, caf::strong_actor_ptr>, Hears<proto::PeerLost>>;

struct UploadJob {
  std::string name;
  std::shared_ptr<const std::string> bytes;
  std::string digest;
  std::uint64_t sent = 0;
  Duration find{};  // the longest search for the manager
  ManagerClient::Done<std::string> done;
  std::function<void(std::uint64_t)> progress;

  [[nodiscard]] bool over() const { return bytes == nullptr; }
  // In the actor. Only the first end counts.
  void End(absl::StatusOr<std::string> answer) {
    if (over()) return;
    bytes.reset();
    std::exchange(done, nullptr)(std::move(answer));
  }
};

template <class Reply>
absl::StatusOr<Reply> WithCode(absl::StatusOr<Reply> reply) {
  if (reply.ok() && reply->code() != 0) return StatusIn(*reply);
  return reply;
}

}  // namespace

struct ManagerClient::State {
  explicit State(PeerDirectory& d) : directory(d) {}
  PeerDirectory& directory;
  std::string address;
  Inbox<Agent> inbox;
  AgentActor agent;
};

class ManagerClient::Agent : public AgentActor::base {
 public:
  Agent(caf::actor_config& config, std::shared_ptr<State> state)
      : AgentActor::base(config), state_(std::move(state)) {}

  const char* name() const override { return "manager_client"; }

  behavior_type make_behavior() override {
    set_down_handler([this](caf::down_msg& down) { calls_.PeerDown(down.source); });
    state_->directory.Watch(state_->address, system().message_types<ClusterManagerActor>(),
                            caf::actor_cast<PeerWatcherActor>(this));
    return {
        [this](const proto::Job& job) { state_->inbox.Run(job, *this); },
        [this](const proto::Tick& tick) { GiveUp(tick.token()); },
        [this](const proto::PeerUp&, const caf::strong_actor_ptr& peer) {
          manager_ = caf::actor_cast<ClusterManagerActor>(peer);
          monitor(manager_);
          for (auto& [token, waiting] : std::exchange(waiting_, {})) waiting.then(absl::OkStatus());
        },
        [this](const proto::PeerLost&) { manager_ = ClusterManagerActor(); },
    };
  }

  void on_exit() override {
    calls_.Clear();
    for (auto& [token, waiting] : std::exchange(waiting_, {})) waiting.then(absl::CancelledError("stopping"));
    manager_ = ClusterManagerActor();
    state_->inbox.Close();
  }

  void Ask(proto::AdminRequest request, Duration timeout, Done<proto::AdminReply> done) {
    WhenFound(timeout,
              [this, request = std::move(request), timeout, done](const absl::Status& status) mutable {
                if (!status.ok()) return done(status);
                Call<proto::AdminReply>(
                    this, calls_, manager_, timeout, std::move(request),
                    [done](absl::StatusOr<proto::AdminReply> reply) { done(WithCode(std::move(reply))); });
              });
  }

  void Send(std::shared_ptr<UploadJob> upload) {
    WhenFound(upload->find, [this, upload](const absl::Status& status) {
      if (!status.ok()) return upload->End(status);
      if (upload->over()) return;
      proto::UploadChunk chunk;
      const auto size = std::min<std::size_t>(kChunk, upload->bytes->size() - upload->sent);
      chunk.set_upload(upload->name);
      chunk.set_offset(upload->sent);
      chunk.set_data(upload->bytes->substr(upload->sent, size));
      chunk.set_last(upload->sent + size == upload->bytes->size());
      chunk.set_digest(upload->digest);
      Call<proto::UploadReply>(this, calls_, manager_, kChunkTimeout, std::move(chunk),
                               [this, upload, size](absl::StatusOr<proto::UploadReply> reply) {
                                 reply = WithCode(std::move(reply));
                                 if (!reply.ok()) return upload->End(reply.status());
                                 if (upload->over()) return;
                                 upload->sent += size;
                                 if (upload->progress) upload->progress(upload->sent);
                                 if (upload->sent == upload->bytes->size())
                                   return upload->End(upload->digest);
                                 Send(upload);
                               });
    });
  }

 private:
  using Then = std::function<void(absl::Status)>;
  struct Waiting {
    Duration wait;
    Then then;
  };

  // At once when the manager is known, else when it is found or given up.
  void WhenFound(Duration timeout, Then then) {
    if (manager_) return then(absl::OkStatus());
    const auto token = next_++;
    const auto wait = std::min(timeout, ManagerClient::kFindTimeout);
    waiting_.emplace(token, Waiting{wait, std::move(then)});
    After(this, wait, MakeTick(kGiveUp, token));
  }

  void GiveUp(std::uint64_t token) {
    auto node = waiting_.extract(token);
    if (node.empty()) return;
    node.mapped().then(absl::UnavailableError(absl::StrCat("no cluster manager answers at ", state_->address,
                                                           " within ", FormatDuration(node.mapped().wait),
                                                           ": is trouped running there?")));
  }

  std::shared_ptr<State> state_;
  ClusterManagerActor manager_;
  PendingCalls calls_;
  std::map<std::uint64_t, Waiting> waiting_;
  std::uint64_t next_ = 1;
};

ManagerClient::ManagerClient(caf::actor_system& system, PeerDirectory& directory, const std::string& manager)
    : state_(std::make_shared<State>(directory)) {
  state_->address = manager;
  state_->agent = caf::actor_cast<AgentActor>(system.spawn<Agent>(state_));
}

ManagerClient::~ManagerClient() {
  caf::anon_send_exit(state_->agent, caf::exit_reason::user_shutdown);
  state_->agent = AgentActor();
}

void ManagerClient::Ask(proto::AdminRequest request, Duration timeout, Done<proto::AdminReply> done) {
  state_->inbox.Post(state_->agent, [request = std::move(request), timeout, done = std::move(done)](
                                        Agent& agent) { agent.Ask(request, timeout, done); });
}

ManagerClient::GiveUp ManagerClient::Upload(std::shared_ptr<const std::string> bytes, Duration find,
                                            Done<std::string> done,
                                            std::function<void(std::uint64_t)> progress) {
  auto upload = std::make_shared<UploadJob>();
  upload->digest = Sha256Hex(*bytes);
  // Two uploads of one file at the same time must not mix.
  upload->name =
      absl::StrCat(upload->digest.substr(0, 16), "-", reinterpret_cast<std::uintptr_t>(upload.get()));
  upload->bytes = std::move(bytes);
  upload->find = find;
  upload->done = std::move(done);
  upload->progress = std::move(progress);
  state_->inbox.Post(state_->agent, [upload](Agent& agent) { agent.Send(upload); });
  return [state = state_, weak = std::weak_ptr(upload)] {
    state->inbox.Post(state->agent, [weak](Agent&) {
      if (const auto upload = weak.lock())
        upload->End(absl::CancelledError("the upload was given up by its caller"));
    });
  };
}

}  // namespace troupe::actors
