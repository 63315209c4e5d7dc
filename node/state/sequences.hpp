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
  // The function is declared. The order that reads its image also asks which sequences it has.
  void Learn(const DeclaredState& function) { owners_[function.key]; }
  void Forget(const StateNumber& function);
  // The disk has images of these sequences.
  void Listed(const StateNumber& function, const std::vector<std::string>& ids);
  // A worker from before this daemon had this of a sequence; its file is that now.
  void Found(const StateNumber& function, const ImagePtr& image);
  // The image of a warm sequence was read, or why it could not be.
  void Loaded(DeclaredState& state, const absl::StatusOr<ImagePtr>& image);

  // --- workers ---
  // A worker that outlived an earlier daemon may have sequences of the function: they are written back, if they may be
  // newer than the files, and dropped.
  void Recover(GpuIndex gpu, const ModelNumber& copy, const DeclaredState& function);
  void Recovered(const SequencesRecovered& purpose, const absl::Status& status,
                 const std::vector<ImagePtr>& images);
  // What all workers had before this daemon began is known.
  void AllMet();
  // No request of the function may run: its sequences' requests end, too.
  void Fail(const DeclaredState& function);
  // The only copy of a sequence's state has gone with a worker. The state is held until the scheduler knows it, too.
  void Lose(const DeclaredState& state);
  // The scheduler hears of the event first.
  void On(const RuntimeLost& event);

  // --- requests ---
  // A request of a sequence has come: the state that it uses. InvalidArgument: there is no such sequence;
  // ResourceExhausted: there are too many.
  absl::StatusOr<StateNumber> Open(const DeclaredState* function, const proto::SubmitRequest& message);
  // Ends the sequence's first request if the request has no state to go on from.
  void Look(const StateNumber& key);
  // A request that starts it is on its way to a GPU: what was there has ended.
  void Begin(const StateNumber& key);
  void Ended(const StateNumber& key, const proto::Sequence& wish, const Finished& finished);

  // --- room ---
  // Moves the longest unused sequence that is in memory to the disk. False: none can go now.
  bool CoolOne();
  // A state that was to leave its GPU has left, or stays there; or the image of a run has been saved.
  void Left() { GiveRoom(); }
  void OnTimer();

  // Every sequence of the function is known: those on disk, and those that workers have.
  [[nodiscard]] bool Known(const StateNumber& function) const;
  // The keys of those that have a state to go on from, in order.
  [[nodiscard]] std::vector<std::string> Begun(const StateNumber& function);
  // Why the node cannot have so many more of this function; OK: it can.
  [[nodiscard]] absl::Status MayAdd(const DeclaredState& function, std::size_t more) const;
  // The disk has the state of this sequence as it is at the function's home; `ended`: it has ended there.
  void Copied(const DeclaredState& function, const std::string& id, bool ended);
  // The function has no sequence any more; those that it gets are listed, or begin.
  void Clear(const DeclaredState& function);
  [[nodiscard]] std::size_t CountOf(const StateNumber& function) const { return table_.CountOf(function); }
  void Describe(proto::NodeDescription& node) const;

 private:
  struct Owner {
    bool listed = false;         // what the disk has is known
    std::size_t recovering = 0;  // workers that are asked for what they have
  };
  [[nodiscard]] absl::Status Unknown(const StateNumber& function, const std::string& id) const;
  void Release(const StateNumber& function);
  // The sequence, which an earlier daemon began; it is added if it is not known yet.
  Sequence& Enter(const StateNumber& function, const std::string& id);
  void Warm(const DeclaredState& function, Sequence& sequence);
  void GiveRoom();
  // The sequence has room in memory: orders its image, or lets its requests begin.
  void Prepare(const Sequence& sequence);
  void Cool(Sequence& sequence);
  // Drops the sequence's state on its GPU, in memory and on disk.
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
