// STATES: what functions keep on the device: which functions of this node do, their images at this host, and
// when their runs may begin. node::FunctionStates (scheduling) decides on which GPU a state is.
//
//   declared -(its file is read, and every worker from before this daemon was asked)-> its runs may begin
//   declared -(its file is damaged, or it cannot be kept)-> failed, until the function is removed
//
// A file that cannot be read for another reason is read again, once a second: it may be whole.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "node/events.hpp"
#include "node/runtimes/order_purposes.hpp"
#include "node/state/declared_states.hpp"
#include "node/state/state_rooms.hpp"

namespace troupe::node {

struct Parts;

class States {
 public:
  States(Parts& parts, std::size_t runtimes, Bytes capacity)
      : parts_(parts), rooms_(capacity), met_(runtimes), unread_(runtimes) {}

  void On(const ImageLoaded& event);
  void OnTimer();
  // To be heard before the scheduler hears it, which then knows nothing of the worker's states any more.
  void On(const RuntimeLost& event);
  // A function came, changed, was unloaded or went. An unloaded function keeps its state.
  void Learn(const proto::FunctionKey& key);
  // What this runtime had before this daemon began is known.
  void Met(GpuIndex gpu);
  // What a worker that outlived an earlier daemon holds of this model's functions is asked for.
  void RecoverAll(GpuIndex gpu, const ModelNumber& copy);
  void Recovered(const RecoveryOrdered& purpose, absl::StatusOr<ImagePtr> image);
  // The model leaves this node. State does not travel between nodes.
  void TellStay(const ModelNumber& copy);

  // The manager names one node as the home of a model's states: only there runs use them. Another node that has the model for
  // other functions, or had the states before, begins none.
  // `epoch`: of this node, as the manager knew it then.
  void BecomeHome(const std::string& digest, std::uint64_t epoch) { homes_[digest] = epoch; }
  void LeaveHome(const std::string& digest) { homes_.erase(digest); }
  // What was said to an earlier epoch of this node does not count: another node may be the home since. The manager names this one
  // again before it answers the join.
  void Joined(std::uint64_t epoch) {
    absl::erase_if(homes_, [epoch](const auto& home) { return home.second < epoch; });
  }
  [[nodiscard]] bool IsHome(const std::string& digest) const { return homes_.contains(digest); }

  // Images that are safe become the images of their functions.
  void Keep(const std::vector<ImagePtr>& images);
  // A worker from before this daemon had this of a function that was not known to have anything there; its file is that now.
  void Found(const ImagePtr& image);
  // Null: there is none.
  [[nodiscard]] ImagePtr ImageOf(const StateNumber& key) const;
  // The image, or zeros, for a swap-in; the image returned keeps what it refers to valid.
  // The function that pays for the swap-in pays for the state's copies too: the state is its own.
  ImagePtr AddTo(const StateNumber& key, proto::SwapInOrder& order);
  // It has no image any more, in memory and on disk.
  void DropImage(const StateNumber& key);
  // What its file has counts, and not what this daemon has read of it. No run begins meanwhile.
  void Reread(DeclaredState& state);
  // Its image stays on disk only.
  void Unload(const StateNumber& key);
  // Its runs may begin, unless something that is known of the state can still come.
  bool Unhold(const DeclaredState& state);
  // No run may use it until its function was removed.
  void Fail(DeclaredState& state, const std::string& kind, absl::Status why);
  // What all workers had before this daemon began is known, as far as it matters.
  [[nodiscard]] bool KnowsAllWorkers() const;
  // The worker of that GPU is asked for states that it had before this daemon began: it keeps their model until they were read.
  void BeginRead(GpuIndex gpu, const ModelNumber& model) { ++reads_[{gpu, model}]; }
  void EndRead(GpuIndex gpu, const ModelNumber& model);
  // A state of the model's functions is on that GPU, or may be.
  [[nodiscard]] bool AnyAt(GpuIndex gpu, const ModelNumber& model) const;
  // The worker of that GPU had the model before this daemon began, with states that were not read.
  [[nodiscard]] bool IsUnread(GpuIndex gpu, const ModelNumber& model) const {
    return unread_[gpu].contains(model);
  }
  // All that was there has been written back, with the model that leaves that GPU.
  void LeftWith(GpuIndex gpu, const ModelNumber& model, const std::vector<ImagePtr>& images);
  // Null: the function has none, or is not known.
  [[nodiscard]] DeclaredState* Find(const proto::FunctionKey& function);
  [[nodiscard]] StateRooms& rooms() { return rooms_; }
  [[nodiscard]] DeclaredStates& declared() { return declared_; }
  [[nodiscard]] const DeclaredStates& declared() const { return declared_; }

 private:
  void Declare(const proto::FunctionRecord& record);
  void ReadLater(const DeclaredState& state, const absl::Status& why);
  void Recover(GpuIndex gpu, const ModelNumber& copy, const StateNumber& key);
  void LetRun(const DeclaredState& state);
  // The worker of that GPU is gone, and what it had.
  void Lose(DeclaredState& state, GpuIndex gpu);
  void Forget(const StateNumber& key);

  Parts& parts_;
  DeclaredStates declared_;
  StateRooms rooms_;
  // By digest of the models whose home this node is: its epoch when the manager said so.
  absl::flat_hash_map<std::string, std::uint64_t> homes_;
  absl::flat_hash_map<StateNumber, ImagePtr> images_;
  std::vector<bool> met_;  // by runtime
  // By runtime: models that its worker had before any of their functions with state was known, or whose states could not be kept.
  std::vector<absl::flat_hash_set<ModelNumber>> unread_;
  absl::flat_hash_map<std::pair<GpuIndex, ModelNumber>, std::size_t> reads_;  // under way
  std::vector<StateNumber> unreadable_;  // whose files are read again when the timer ends
};

}  // namespace troupe::node
