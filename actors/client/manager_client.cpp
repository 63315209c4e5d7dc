#include "actors/client/manager_client.hpp"

#include <caf/actor_system.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "actors/core/call.hpp"
#include "actors/core/inbox.hpp"
#include "actors/core/time.hpp"
#include "actors/interfaces/cluster_manager.hpp"
#include "base/wire_status.hpp"
#include "proto/local.pb.h"

namespace troupe::actors {

namespace {

constexpr std::size_t kChunk = 1u << 20;
// Chunks that were sent and not answered: while the manager writes one the next ones are on their way.
constexpr std::size_t kAhead = 4;
enum : std::uint32_t { kGiveUp = 1, kTryAgain = 2 };
// The last chunk waits for the whole file to be on the disk, the first one behind a restart for it to be read.
constexpr Duration kChunkTimeout = std::chrono::minutes(5);
// Of an upload whose connection broke: how long it looks for the manager each time, how often it tries without any byte
// that arrives, and the longest pause between two tries.
constexpr Duration kComesBack = std::chrono::seconds(30);
constexpr int kTries = 8;
constexpr Duration kFirstPause = std::chrono::milliseconds(100);
constexpr Duration kLongestPause = std::chrono::seconds(5);

using AgentActor = Interface<Hears<proto::Job>, Hears<proto::Tick>,
                             caf::reacts_to<proto::PeerUp, caf::strong_actor_ptr>, Hears<proto::PeerLost>>;

struct UploadJob {
  std::shared_ptr<const UploadSource> source;
  std::string digest;
  std::string client;
  std::uint64_t arrived = 0;
  std::uint64_t sent = 0;
  std::size_t open = 0;    // chunks that were sent and not answered
  bool sent_last = false;  // the chunk that ends the file
  absl::Status broken{};   // why it asks how much has arrived as soon as all of them are answered
  Duration find{};         // the longest search for the manager
  int failures = 0;        // since a byte arrived
  ManagerClient::Done<std::string> done;
  std::function<void(std::uint64_t)> progress;

  [[nodiscard]] bool over() const { return source == nullptr; }
  // In the actor. Only the first end counts.
  void End(absl::StatusOr<std::string> answer) {
    if (over()) return;
    source.reset();
    std::exchange(done, nullptr)(std::move(answer));
  }
  // The manager has so many bytes.
  void At(std::uint64_t bytes) {
    if (bytes > arrived) failures = 0;
    arrived = bytes;
    if (progress) progress(arrived);
  }
  // It goes on from what has arrived.
  void Rewind() {
    sent = arrived;
    sent_last = false;
    broken = absl::OkStatus();
  }
  [[nodiscard]] proto::UploadChunk Chunk(proto::UploadChunk::Wish wish) const {
    proto::UploadChunk chunk;
    chunk.set_wish(wish);
    chunk.set_digest(digest);
    chunk.set_client(client);
    chunk.set_offset(sent);
    return chunk;
  }
};

// Whether to look again how much has arrived: the connection broke, or another one sends the same file.
bool MayGoOn(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) || absl::IsAborted(status) ||
         absl::IsOutOfRange(status);
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
        [this](const proto::Tick& tick) { Tick(tick); },
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
    for (auto& [token, upload] : std::exchange(paused_, {})) upload->End(absl::CancelledError("stopping"));
    manager_ = ClusterManagerActor();
    state_->inbox.Close();
  }

  void Ask(proto::AdminRequest request, Duration timeout, Done<proto::AdminReply> done) {
    WhenFound(std::min(timeout, ManagerClient::kFindTimeout),
              [this, request = std::move(request), timeout, done](const absl::Status& status) mutable {
                if (!status.ok()) return done(status);
                Call<proto::AdminReply>(
                    this, calls_, manager_, timeout, std::move(request),
                    [done](absl::StatusOr<proto::AdminReply> reply) { done(Checked(std::move(reply))); });
              });
  }

  void Send(proto::UploadChunk chunk, Done<proto::UploadReply> done) {
    WhenFound(ManagerClient::kFindTimeout,
              [this, chunk = std::move(chunk), done](const absl::Status& status) mutable {
                if (!status.ok()) return done(status);
                Call<proto::UploadReply>(this, calls_, manager_, kChunkTimeout, std::move(chunk), done);
              });
  }

  // Asks how much of it is there, and sends the rest.
  void Begin(const std::shared_ptr<UploadJob>& upload) {
    WhenFound(upload->find, [this, upload](const absl::Status& status) {
      if (upload->over()) return;
      if (!status.ok()) return upload->End(status);
      upload->find = kComesBack;
      Call<proto::UploadReply>(this, calls_, manager_, kChunkTimeout, upload->Chunk(proto::UploadChunk::ASK),
                               [this, upload](absl::StatusOr<proto::UploadReply> reply) {
                                 reply = Checked(std::move(reply));
                                 if (absl::IsNotFound(reply.status())) reply = proto::UploadReply();
                                 GoOn(upload, reply);
                               });
    });
  }

  // Gives up what a caller does not want any more.
  void Drop(const UploadJob& upload) {
    if (!manager_ || upload.sent == 0) return;
    Call<proto::UploadReply>(this, calls_, manager_, kChunkTimeout, upload.Chunk(proto::UploadChunk::DROP),
                             [](const absl::StatusOr<proto::UploadReply>&) {});
  }

 private:
  // The manager has said how much is there, and nothing is on its way.
  void GoOn(const std::shared_ptr<UploadJob>& upload, const absl::StatusOr<proto::UploadReply>& reply) {
    if (upload->over()) return;
    if (MayGoOn(reply.status())) return TryAgain(upload, reply.status());
    if (!Take(*upload, reply)) return;
    upload->Rewind();
    Send(upload);
  }

  // False: the upload has ended.
  static bool Take(UploadJob& upload, const absl::StatusOr<proto::UploadReply>& reply) {
    if (!reply.ok()) {
      upload.End(reply.status());
    } else if (reply->received() > upload.source->size()) {
      upload.End(absl::DataLossError(absl::StrCat("the cluster manager has ", reply->received(),
                                                  " bytes of a file of ", upload.source->size(),
                                                  ", which has changed meanwhile: upload it again")));
    } else {
      upload.At(reply->received());
      if (!upload.over() && reply->complete()) upload.End(upload.digest);
    }
    return !upload.over();
  }

  void Answered(const std::shared_ptr<UploadJob>& upload, const absl::StatusOr<proto::UploadReply>& reply) {
    --upload->open;
    if (upload->over()) return;
    if (upload->broken.ok() && MayGoOn(reply.status())) upload->broken = reply.status();
    if (upload->broken.ok() && !Take(*upload, reply)) return;
    if (upload->broken.ok() && upload->sent_last && upload->open == 0)
      upload->broken = absl::UnavailableError("the cluster manager has all bytes, and not the file");
    if (upload->broken.ok()) return Send(upload);
    // What was sent behind a chunk that was refused is refused, too.
    if (upload->open == 0) TryAgain(upload, upload->broken);
  }

  void Send(const std::shared_ptr<UploadJob>& upload) {
    while (!upload->over() && !upload->sent_last && upload->open < kAhead) SendChunk(upload);
  }

  void SendChunk(const std::shared_ptr<UploadJob>& upload) {
    auto chunk = upload->Chunk(proto::UploadChunk::APPEND);
    const auto rest = upload->source->size() - upload->sent;
    const auto size = std::min<std::uint64_t>(kChunk, rest);
    auto piece = upload->source->Read(upload->sent, size);
    if (!piece.ok()) return upload->End(piece.status());
    chunk.set_data(*std::move(piece));
    chunk.set_last(size == rest);
    upload->sent += size;
    upload->sent_last = chunk.last();
    ++upload->open;
    Call<proto::UploadReply>(this, calls_, manager_, kChunkTimeout, std::move(chunk),
                             [this, upload](const absl::StatusOr<proto::UploadReply>& reply) {
                               Answered(upload, Checked(reply));
                             });
  }

  void TryAgain(const std::shared_ptr<UploadJob>& upload, const absl::Status& why) {
    if (++upload->failures > kTries) return upload->End(why);
    const auto pause = std::min(kLongestPause, kFirstPause * (1 << (upload->failures - 1)));
    const auto token = next_++;
    paused_.emplace(token, upload);
    After(this, pause, MakeTick(kTryAgain, token));
  }

  void Tick(const proto::Tick& tick) {
    if (tick.what() == kGiveUp) return GiveUp(tick.token());
    const auto node = paused_.extract(tick.token());
    if (!node.empty() && !node.mapped()->over()) Begin(node.mapped());
  }

  using Then = std::function<void(absl::Status)>;
  struct Waiting {
    Duration wait;
    Then then;
  };

  // At once when the manager is known, else when it is found or given up.
  void WhenFound(Duration wait, Then then) {
    if (manager_) return then(absl::OkStatus());
    const auto token = next_++;
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
  std::map<std::uint64_t, std::shared_ptr<UploadJob>> paused_;  // uploads between two tries, by their timer
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

void ManagerClient::Send(proto::UploadChunk chunk, Done<proto::UploadReply> done) {
  state_->inbox.Post(state_->agent, [chunk = std::move(chunk), done = std::move(done)](Agent& agent) {
    agent.Send(chunk, done);
  });
}

ManagerClient::GiveUp ManagerClient::Upload(std::shared_ptr<const UploadSource> source,
                                            const std::string& client, Duration find, Done<std::string> done,
                                            std::function<void(std::uint64_t)> progress) {
  auto digest = DigestOf(*source);
  if (!digest.ok()) {
    done(digest.status());
    return [] {};
  }
  auto upload = std::make_shared<UploadJob>();
  upload->digest = *std::move(digest);
  upload->client = client;
  upload->source = std::move(source);
  upload->find = std::min(find, kFindTimeout);
  upload->done = std::move(done);
  upload->progress = std::move(progress);
  state_->inbox.Post(state_->agent, [upload](Agent& agent) { agent.Begin(upload); });
  return [state = state_, weak = std::weak_ptr(upload)] {
    state->inbox.Post(state->agent, [weak](Agent& agent) {
      const auto upload = weak.lock();
      if (upload == nullptr || upload->over()) return;
      upload->End(absl::CancelledError("the upload was given up by its caller"));
      agent.Drop(*upload);
    });
  };
}

}  // namespace troupe::actors
