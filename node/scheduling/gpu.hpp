// One GPU, and one model on it, as the table of GPUs (node/scheduling/gpu_table.hpp) has them. Plain data;
// the table alone changes it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "node/names.hpp"
#include "node/request.hpp"
#include "node/state/stay.hpp"
#include "scheduling/backlog.hpp"
#include "scheduling/by_kind.hpp"

namespace troupe::node {

enum class ResidentState { kLoading, kResident, kRunning };
[[nodiscard]] const char* Name(ResidentState state);

struct Resident {
  Bytes bytes{};
  Time last_use{};
  ResidentState state = ResidentState::kLoading;
  std::uint32_t pins = 0;  // dispatched requests that use it
  bool missing = false;    // its worker says so: nothing more is sent there for it, and it goes with its pins
  std::uint32_t readers = 0;  // swaps of other GPUs that copy from here, also while it comes
  Duration load{};            // while loading from the host: what it was thought to take of the link
  Duration occupies{};        // while loading: for how long it was thought to keep the GPU from all runs
  GpuIndex source = kNoGpu;   // while loading: the GPU it comes from; kNoGpu: the host, or that GPU is gone
  // Of its functions, that are there or on their way; they leave with it, and those of sequences also before.
  absl::flat_hash_map<StateNumber, Bytes> states{};
  Bytes state_bytes{};  // of them all
  Stay stay{};          // its states could not be written back: it is not evicted for a while

  [[nodiscard]] Bytes WithStates() const { return bytes + state_bytes; }

  [[nodiscard]] bool Idle() const { return state == ResidentState::kResident && readers == 0 && stay.over(); }
};

// Of one model.
struct EvictionOrders {
  std::uint32_t open = 0;      // on their way
  std::uint32_t failures = 0;  // how often in a row it was to go before, and stayed
};

// What a dispatched request takes of its GPU.
struct RunClaim {
  Bytes activation{};           // promised
  Duration work{};              // of the whole GPU, as it was estimated
  std::uint32_t percent = 100;  // of the SMs
};

enum class WorkerState { kAbsent, kReady, kUnfit };

// What every look at it reads comes first: whether it takes a request in one line of the cache, how busy it
// is in the next.
struct alignas(64) Gpu {
  GpuIndex index = 0;
  std::uint32_t device = 0;  // the GPU of the node that it stands on
  WorkerState worker = WorkerState::kAbsent;
  bool assigned = true;      // false: warm
  bool peer_copies = false;  // its worker can copy from other GPUs
  bool broadcasts = false;   // its worker sends and gets models as they come
  std::uint32_t in_flight = 0;
  std::uint32_t taken = 0;  // what these take of the SMs, in percent: more than 100 wait for each other
  std::uint32_t coming_models = 0;  // on their way
  KindId kind = 0;
  Bytes memory{};
  Bytes overhead{};    // what the worker reports as gone beyond the plan: fragments, alignment, its own needs
  Bytes promised{};    // activations of dispatched requests
  Bytes staying{};     // sum over residents
  Bytes idle{};        // of it: what could be evicted now
  Backlog work{};      // runs that were dispatched, and loads that nothing runs beneath
  Backlog bringing{};  // loads from the host
  Bytes strange{};     // of the overhead: models that are unknown here, not yet or not any more
  bool found_states = false;  // what its worker had when it came may be newer states than this node has read
  absl::flat_hash_map<ModelId, Resident> residents{};
  std::string key{};                    // whom it serves
  std::optional<std::string> coming{};  // whom it will serve when its worker is ready
  Time ready_since{};                   // of its latest worker
  Time idle_since{};                    // with nothing in flight
  std::uint32_t unread = 0;             // answers whose outputs lie in its worker's memory
  std::vector<ModelId> host_loads{};    // on their way from the host
  absl::flat_hash_map<ModelId, EvictionOrders> evicting{};

  // Room for a new model or run without evicting anything; zero when the worker's own count left less.
  [[nodiscard]] Bytes Free() const {
    const Bytes taken = overhead + staying + promised;
    return memory > taken ? memory - taken : Bytes();
  }
  [[nodiscard]] const Resident* Find(ModelId model) const {
    const auto it = residents.find(model);
    return it == residents.end() ? nullptr : &it->second;
  }
};

}  // namespace troupe::node
