// FUNCTION STATES: where each device state is, and whose turn it is: the one state of a function, and that of each of its
// sequences that is in use. One GPU at a time has a state; while it is at none, its image is at the host (or it is zeros).
//
//   away -(a dispatch brings it)-> at a GPU -(its model goes: leaving)-> away
//   at a GPU -(of a sequence: another run needs its room: leaving)-> away
//   at a GPU -(its worker died)-> away
//
// Runs of one state take turns in the order of their acceptance: the next begins when the one before has ended. Runs of two
// states do not wait for each other. Owned by the swap scheduler. Pure.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/node_hash_map.h"
#include "node/names.hpp"
#include "node/request.hpp"
#include "node/state/stay.hpp"

namespace troupe::node {

class FunctionStates {
 public:
  struct State {
    ModelId model = kNoModel;
    Bytes bytes{};          // that it takes on a device
    GpuIndex gpu = kNoGpu;  // the only GPU that may run the function; kNoGpu: any
    bool current = false;   // what is there is the state; else it is brought with the next run
    bool leaving = false;   // its model is being evicted from there, and no run begins meanwhile
    bool held = false;      // its image is not known or not safe yet, and no run begins meanwhile
    bool running = false;   // the first in line was dispatched
    bool sequence = false;  // it may leave a GPU without its model
    Stay stay{};            // it could not be written back: it does not leave without its model for a while
    Time used{};            // dispatched last
    std::deque<RequestId> line{};

    [[nodiscard]] bool MayRun() const { return !leaving && !held && !running && !line.empty(); }
    [[nodiscard]] bool MayLeave(GpuIndex where) const {
      return sequence && CurrentAt(where) && !leaving && !running && stay.over();
    }
    [[nodiscard]] bool CurrentAt(GpuIndex where) const { return gpu == where && current; }
  };

  // Again with another size: nothing changes but that.
  void Declare(const StateNumber& key, ModelId model, Bytes bytes, bool sequence = false);
  void Forget(const StateNumber& key);
  [[nodiscard]] State* Find(const StateNumber& key);
  [[nodiscard]] const State* Find(const StateNumber& key) const;
  [[nodiscard]] const absl::node_hash_map<StateNumber, State>& all() const { return states_; }
  // Of the functions of one model, in the order in which they were declared; empty for most.
  [[nodiscard]] const std::vector<StateNumber>& Of(ModelId model) const;
  // What the states of the functions themselves take, which leave a GPU with their model only.
  [[nodiscard]] Bytes BytesOf(ModelId model) const;

  void Enter(const StateNumber& key, const RequestId& id);
  void Leave(const StateNumber& key, const RequestId& id);

  // The model leaves this GPU, or stays after all (`gone` false).
  void BeginEvict(GpuIndex gpu, ModelId model);
  void EndEvict(GpuIndex gpu, ModelId model, bool gone);
  // The same for one state alone.
  void BeginLeave(const StateNumber& key);
  // `gone` false: it stays for a while.
  void EndLeave(const StateNumber& key, bool gone, Time now);
  // When the next state has stayed for long enough; Time::max(): there is none.
  [[nodiscard]] Time next_stay_end() const { return next_stay_end_; }
  // States that have stayed for long enough may leave again: their models.
  [[nodiscard]] std::vector<ModelId> EndStays(Time now);
  void WorkerGone(GpuIndex gpu);

  // Requests of this model that wait for a turn which is not theirs yet.
  [[nodiscard]] std::size_t Blocked(ModelId model) const;

 private:
  struct OfModel {
    std::vector<StateNumber> states{};
    std::vector<StateNumber> waited_for{};  // of them, by requests
    Bytes bytes{};
  };

  absl::node_hash_map<StateNumber, State> states_;
  absl::flat_hash_map<ModelId, OfModel> by_model_;
  Time next_stay_end_ = Time::max();
};

}  // namespace troupe::node
