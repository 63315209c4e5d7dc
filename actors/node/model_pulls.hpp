// MODEL PULLS: objects of models on their way to this node's disk, from other nodes that have them and from the manager.
// node::ObjectPull decides which range is asked of whom; this asks, checks what comes, and writes it in order.
//
//   a pull:  measuring (the manager says how large the object is) -> pulling -> syncing -> over
//            each of the first two -> paused (the manager is not there) -> the same again, or over after a while
//
// A range of another node is checked against the digest that the manager computes of the same range while the bytes are
// on their way; the whole object is checked against its own digest when its last byte is written. Owned by the cache, in
// whose thread everything happens.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "actors/core/call.hpp"
#include "actors/core/continuations.hpp"
#include "actors/interfaces/cache.hpp"
#include "actors/interfaces/cluster_manager.hpp"
#include "actors/seams/model_repository.hpp"
#include "actors/seams/peer_directory.hpp"
#include "node/models/object_pull.hpp"

namespace troupe::actors {

// The cache, with what only it tells itself.
using CacheSelf =
    CacheActor::extend<Hears<proto::Continue>, Hears<proto::Tick>,
                       caf::reacts_to<proto::PeerUp, caf::strong_actor_ptr>, Hears<proto::PeerLost>>;

// Any process that answers for its objects: the manager, a node.
using ObjectSourceActor =
    Interface<Asks<proto::FetchObject, proto::FetchReply>, Hears<proto::ReleaseFetched>>;

// Counted by the cache, read by any thread.
struct PullCounts {
  std::atomic<std::uint64_t> from_nodes{0};    // bytes
  std::atomic<std::uint64_t> from_manager{0};  // bytes
  std::atomic<std::uint64_t> wrong{0};         // ranges whose bytes were not those of the model
};

struct PullTerms {
  node::ObjectPull::Limits limits;
  Duration manager_timeout = std::chrono::seconds(10);  // of one range
  // While the manager is not there, which has the digests, a pull tries again so often, and keeps what it has.
  Duration manager_retry = std::chrono::milliseconds(500);
  std::uint32_t manager_retries = 120;
  // Of one range of another node: the manager can stand in for it.
  Duration node_timeout = std::chrono::seconds(3);
  // Of one range of a node that is fetching it itself; longer than that node lets a question wait.
  Duration relay_timeout = std::chrono::seconds(8);
  Duration relay_beat = std::chrono::seconds(3);            // between two judgements of such nodes
  Duration reach_timeout = std::chrono::milliseconds(500);  // until a node is connected
};

class RelayedRanges;

class ModelPulls {
 public:
  // The owner's ticks for StopAwaiting, GoOn and Beat, with the number of a pull.
  static constexpr std::uint32_t kReachTick = 3;
  static constexpr std::uint32_t kGoOnTick = 5;
  static constexpr std::uint32_t kBeatTick = 6;

  struct Result {
    absl::Status status;
    std::uint64_t bytes = 0;
    std::vector<std::string> wrong;  // nodes that sent wrong bytes, one text each
  };
  using Done = std::function<void(Result)>;

  // All of them outlive it.
  struct Needs {
    ModelRepository& repository;
    PeerDirectory& directory;
    RelayedRanges& relayed;  // is told of each range that is on the disk
  };
  ModelPulls(PullTerms terms, const Needs& needs, std::shared_ptr<PullCounts> counts)
      : terms_(terms), needs_(needs), counts_(std::move(counts)) {}

  // Brings the object to the disk. `places`: the nodes that have it, or are fetching it. `done` is called once, unless the owner ends.
  void Pull(CacheSelf::base* self, const std::string& model, const std::string& object,
            const proto::ModelPlaces& places, Done done);
  void ManagerUp(const ClusterManagerActor& manager) { manager_ = manager; }
  void ManagerLost() { manager_ = nullptr; }
  void NodeUp(CacheSelf::base* self, const std::string& address, const caf::strong_actor_ptr& actor);
  void NodeLost(CacheSelf::base* self, const std::string& address);
  void StopAwaiting(CacheSelf::base* self, std::uint64_t pull);
  void Beat(CacheSelf::base* self, std::uint64_t pull);
  // The pull was paused.
  void GoOn(CacheSelf::base* self, std::uint64_t pull);
  void Resume(const proto::Continue& message) { continuations_.Resume(message); }
  void PeerDown(const caf::actor_addr& peer) { calls_.PeerDown(peer); }
  // At the actor's end.
  void Clear();

 private:
  using Question = node::ObjectPull::Question;
  struct Place {
    std::string node;
    std::string address;
  };
  struct Offer {  // a source's answer: bytes that can be loaded
    Question question;
    proto::FetchReply reply;
    ObjectSourceActor source;
  };
  struct OnePull {
    std::string upload;  // its name at the repository
    std::string object;
    std::vector<Place> places;  // source 1 is the first
    std::size_t relays = 0;     // the first so many are fetching it themselves
    std::optional<node::ObjectPull> plan;
    std::map<std::uint64_t, std::string> digests;   // by offset; empty: it was asked for
    std::multimap<std::uint64_t, Offer> unchecked;  // by offset: these wait for the digest of their range
    std::map<std::uint64_t, std::string> here;      // by offset: bytes that are not written yet
    bool writing = false;
    bool paused = false;
    std::uint32_t retries = 0;                                                    // one after the other
    absl::Status why = absl::UnavailableError("no source of its bytes is left");  // the manager is left out
    Result result;
    Done done;
  };
  struct Node {
    ObjectSourceActor actor;
    std::set<std::uint64_t> pulls;
  };
  using Self = CacheSelf::base;

  void Measure(Self* self, std::uint64_t pull);
  void Measured(Self* self, std::uint64_t pull, const absl::StatusOr<proto::RangeDigest>& reply);
  // The manager did not answer: the pull is paused if it is not there, and else over.
  void Pause(Self* self, std::uint64_t pull, const absl::Status& why);
  void Digested(Self* self, std::uint64_t pull, std::uint64_t offset,
                const absl::StatusOr<proto::RangeDigest>& reply);
  // A source's answer that nothing needs.
  void Drop(Self* self, std::uint64_t pull, const Offer& offer);
  void Go(Self* self, std::uint64_t pull);
  void Ask(Self* self, std::uint64_t pull, const Question& question);
  void AskDigest(Self* self, std::uint64_t pull, std::uint64_t offset, std::uint64_t length);
  void Answered(Self* self, std::uint64_t pull, const Question& question, const ObjectSourceActor& source,
                absl::StatusOr<proto::FetchReply> reply);
  void Skip(Self* self, std::uint64_t pull, const Offer& offer);
  void Load(Self* self, std::uint64_t pull, const Offer& offer, const std::string& sha256);
  void Loaded(Self* self, std::uint64_t pull, const Question& question, absl::StatusOr<std::string> bytes);
  void Failed(Self* self, std::uint64_t pull, const Question& question, const absl::Status& status);
  void Write(Self* self, std::uint64_t pull);
  void Finish(Self* self, std::uint64_t pull);
  void End(Self* self, std::uint64_t pull, absl::Status status);
  static void Release(Self* self, const ObjectSourceActor& source, const proto::FetchReply& reply);
  [[nodiscard]] Duration TimeoutOf(const OnePull& pull, node::ObjectPull::Source source) const;
  [[nodiscard]] ObjectSourceActor SourceOf(const OnePull& pull, node::ObjectPull::Source source) const;
  [[nodiscard]] OnePull* Find(std::uint64_t pull);

  const PullTerms terms_;
  const Needs needs_;
  const std::shared_ptr<PullCounts> counts_;
  ClusterManagerActor manager_;
  PeerWatcherActor watcher_;  // the owner, once it has watched a node
  PendingCalls calls_;
  static constexpr std::uint64_t kFirstTicket = std::uint64_t{1} << 61U;
  Continuations continuations_{kFirstTicket};  // tickets that no other continuations of the owner have
  std::map<std::string, Node> nodes_;          // by address
  std::map<std::uint64_t, OnePull> pulls_;
  std::uint64_t next_pull_ = 1;
};

}  // namespace troupe::actors
