// SEQUENCES: the many states of a function, one for each sequence of its requests (the KV cache of a chat): which there are,
// which of them are in memory, and when one ends. A request of a sequence uses the sequence's state instead of the
// function's own.
//
//   absent -(a request with `start`)-> warm -(others need its room in memory: the longest unused)-> cold: on disk
//   cold -(a request)-> warm: its image is read, and its requests wait meanwhile
//   warm, cold -(`end` was answered; unused for too long; lost; its function went)-> absent
//
// A request goes on from what the one before it left. When there is nothing to go on from and it does not start the
// sequence, it is refused when its turn comes: an earlier request may begin or end the sequence.
#pragma once

#include <cstddef>
#include <deque>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "node/events.hpp"
#include "node/runtimes/order_purposes.hpp"
#include "node/state/declared_states.hpp"
#include "node/state/sequence_endings.hpp"
#include "node/state/sequence_table.hpp"
#include "proto/admin.pb.h"

namespace troupe::node {

struct Parts;

class Sequences {
 public:
  explicit Sequences(Parts& parts) : parts_(parts) {}

  // --- functions ---
  // It is there; which sequences it has is asked for with its image.
  void Learn(const DeclaredState& function) { owners_[function.key]; }
  void Forget(const StateNumber& function);
  // Those that the disk has.
  void Listed(const StateNumber& function, const std::vector<std::string>& ids);
  // The image of a warm sequence was read, or why it could not be.
  void Loaded(DeclaredState& state, const absl::StatusOr<ImagePtr>& image);

  // --- workers ---
  // A worker that outlived an earlier daemon may have some: what it has is written back, if it may be more than the files
  // have, and dropped.
  void Recover(GpuIndex gpu, const ModelNumber& copy, const DeclaredState& function);
  void Recovered(const SequencesRecovered& purpose, const absl::Status& status,
                 const std::vector<ImagePtr>& images);
  // What all workers had before this daemon began is known.
  void AllMet();
  // No request of the function may run: its sequences' requests end, too.
  void Fail(const DeclaredState& function);
  // All that there was of its state has gone with a worker. It is held until the scheduler has heard of that, too.
  void Lose(const DeclaredState& state);
  // To be heard after the scheduler.
  void On(const RuntimeLost& event);

  // --- requests ---
  // A request of a sequence has come: the state that it uses. InvalidArgument: there is no such sequence;
  // ResourceExhausted: there are too many.
  absl::StatusOr<StateNumber> Open(const DeclaredState* function, const proto::SubmitRequest& message);
  // The first of its requests may have nothing to go on from.
  void Look(const StateNumber& key);
  // A request that starts it is on its way to a GPU: what was there has ended.
  void Begin(const StateNumber& key);
  void Ended(const StateNumber& key, const proto::Sequence& wish, const Finished& finished);

  // --- room ---
  // The longest unused one that is in memory goes to the disk. False: none can go now.
  bool CoolOne();
  // A state was to leave its GPU, and has left or stays.
  void Left() { GiveRoom(); }
  void OnTimer();

  [[nodiscard]] std::size_t CountOf(const StateNumber& function) const { return table_.CountOf(function); }
  void Describe(proto::NodeDescription& node) const;

 private:
  struct Owner {
    bool listed = false;         // what the disk has is known
    std::size_t recovering = 0;  // workers that are asked for what they have
  };
  // All sequences of the function are known that there are.
  [[nodiscard]] bool Known(const StateNumber& function) const;
  [[nodiscard]] absl::Status MayAdd(const DeclaredState& function, const std::string& id) const;
  [[nodiscard]] absl::Status Unknown(const StateNumber& function, const std::string& id) const;
  void Release(const StateNumber& function);
  void Warm(const DeclaredState& function, Sequence& sequence);
  void GiveRoom();
  // It has room in memory: its image is read, or its requests may begin.
  void Prepare(const Sequence& sequence);
  void Cool(Sequence& sequence);
  // On its GPU, in memory and on disk.
  void DropState(Sequence& sequence);
  void TakeOffGpu(const StateNumber& key);
  void Remove(Sequence& sequence);
  void ForgetState(const StateNumber& key);
  void DropAtWorker(GpuIndex gpu, const ModelNumber& model, const StateNumber& function);
  void EndIdle(std::list<Sequence>& list, std::vector<std::pair<StateNumber, std::string>>& ended);
  void Arm();

  Parts& parts_;
  SequenceTable table_;
  absl::flat_hash_map<StateNumber, Owner> owners_;
  std::deque<StateNumber> waiting_;  // for room in memory, in order
  std::vector<StateNumber> lost_;    // held until On(RuntimeLost)
  std::size_t with_room_ = 0;
  SequenceEndings endings_;
  bool armed_ = false;
};

}  // namespace troupe::node
