// FAKE WORKER LINK: a worker that lives under the actors' clock, for tests and the simulator: bounded memory,
// and a GPU that takes its time (fake_gpu.hpp). It keeps the contract of WorkerLink and can be killed, hung
// and made to refuse.
#pragma once

#include <algorithm>
#include <caf/actor_system.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "actors/seams/fake_gpu.hpp"
#include "actors/seams/fake_kept.hpp"
#include "actors/seams/fake_long_runs.hpp"
#include "actors/seams/fake_meters.hpp"
#include "actors/seams/fake_tensors.hpp"
#include "actors/seams/fake_turns.hpp"
#include "actors/seams/worker_link.hpp"
#include "base/units.hpp"

namespace troupe::actors {

struct FakeWorkerProfile {
  Bytes memory = GiB(1);
  BytesPerSecond link{6e9};
  BytesPerSecond peer_link{25e9};  // from another GPU
  Duration prepare = std::chrono::milliseconds(50);
  Duration run = std::chrono::milliseconds(10);
  Duration start = std::chrono::milliseconds(20);  // from Spawn until it listens
  Duration write_back = std::chrono::milliseconds(1);
  Bytes activation = MiB(1);
  std::function<Bytes(const std::string& digest)> activation_of;  // of a model's runs; empty: `activation`
  Duration adopt_timeout = std::chrono::seconds(5);
  Duration lease = std::chrono::seconds(30);  // how long it lives without a link
  bool keeps = false;                         // the models on its GPU outlive it (FakeKept)
  std::uint64_t spoil_every = 0;              // FakeKept
  std::size_t ring = 4096;                    // orders that the worker has not taken yet
  // Of models whose runs take longer now and then; common to all workers that this profile is copied for.
  std::shared_ptr<FakeLongRuns> long_runs = std::make_shared<FakeLongRuns>();
  std::shared_ptr<FakeQuotas> quotas = std::make_shared<FakeQuotas>();  // common to them, too
  std::shared_ptr<transport::FakeTensorChannel> channel;  // in which it exports tensors; null: it cannot
  // What a run's inputs take until the run may begin, by where they are; empty: nothing.
  std::function<Duration(const proto::RunOrder& run)> reading;
  // What its loads and runs take; empty: a link of `link` or `peer_link`, and runs of `run`.
  std::function<std::unique_ptr<FakeGpu>(FakeGpu::Timer)> make_gpu;

  [[nodiscard]] Bytes RunOf(const std::string& digest) const {
    return activation_of ? activation_of(digest) : activation;
  }
  [[nodiscard]] std::unique_ptr<FakeGpu> NewGpu(FakeGpu::Timer timer) const {
    return make_gpu ? make_gpu(std::move(timer)) : MakeSimpleGpu({link, peer_link, run}, std::move(timer));
  }
  [[nodiscard]] Duration ReadingTime(const proto::RunOrder& run) const {
    return reading ? reading(run) : Duration::zero();
  }
};

// One life of a worker. It goes on for the lease when its link lets go.
struct FakeWorkerLife {
  bool up = false;
  bool linked = false;  // adopted, by the link that there is
  std::string runtime;  // whom it serves
  std::string page;     // in which it counts; empty: it does not
  Time alone_since{};
  std::map<std::string, Bytes> resident;  // by digest
  std::map<std::string, Bytes> loading;
  std::map<std::uint64_t, std::string> pins;    // digests of what other GPUs copy from here
  std::map<std::string, std::string> meetings;  // digests of what it broadcasts, by meeting
  struct State {
    std::string digest;  // of its model
    proto::StateImage image;
    bool changed = false;
  };
  std::map<std::string, State> states;  // by function; what a run leaves says how many there were
  FakeTensors tensors;                  // that its runs have left for others

  [[nodiscard]] bool Pinned(const std::string& digest) const {
    return std::ranges::any_of(pins, [&](const auto& pin) { return pin.second == digest; });
  }
  // What a run needs has come.
  [[nodiscard]] absl::Status HasWhatItNeeds(const proto::RunOrder& run) const {
    if (!run.by_layer() && !resident.contains(run.digest()))
      return absl::NotFoundError("the model did not come");
    const bool state = run.stateful().empty() || states.contains(run.stateful());
    return state ? absl::OkStatus() : absl::AbortedError("the state is not here");
  }
};

// What a test sees and does to the worker behind a link. Shared: outlives link and worker.
class FakeWorkerControl {
 public:
  std::uint64_t spawns = 0;
  std::uint64_t runs = 0;
  std::uint64_t batches = 0;  // runs that answered several requests
  std::uint64_t swaps = 0;
  std::uint64_t peer_swaps = 0;  // of `swaps`: copies from another GPU that were begun
  std::uint64_t pulled = 0;      // tensors that came from other GPUs
  std::uint64_t received = 0;    // of `swaps`: models that came whole by a broadcast
  std::uint64_t by_layer = 0;    // of `runs`: those whose model passed through
  Bytes used;                    // device memory
  Bytes fullest;                 // device memory at its fullest, with the activations of the runs under way
  std::uint64_t no_fit = 0;      // swap-ins that found no room
  std::uint64_t given = 0;       // runs that it was ordered
  std::uint64_t open = 0;        // orders that it has not answered yet
  FakeWorkerLife life;
  FakeKept kept;
  std::shared_ptr<FakeMeters> meters;  // of its machine; null: nothing is counted
  // (runtime, digest) of each model that was prepared, brought or run here.
  std::set<std::pair<std::string, std::string>> touched;
  // (digest, precision, and percent of the SMs of each run) of each model that was prepared or run here.
  std::set<std::pair<std::string, proto::Precision>> prepared_as;
  std::set<std::tuple<std::string, proto::Precision, std::uint32_t>> run_as;
  // (runtime of the destination, of the source) of each copy from another GPU that was begun.
  std::set<std::pair<std::string, std::string>> copied;
  bool hang = false;          // orders are taken and never answered, adoptions neither
  bool refuse_start = false;  // exits at once, with code 1
  bool refuse_write_back = false;
  // A mistake on purpose: a write-back takes the changed states of all functions of its model, so that a
  // sibling that has just run finds nothing to write back, is refused, and has been counted all the same.
  bool states_by_model = false;
  bool swap_members =
      false;  // a mistake on purpose: the first two requests of a batch get each other's outputs
  bool never_releases = false;  // a mistake on purpose: tensors that are released stay
  bool spoils_copies = false;   // a mistake on purpose: what comes from other GPUs is not what lay there
  bool swaps_parts = false;     // a mistake on purpose: an input in parts is put together in the wrong order
  bool input_parts = true;      // it takes inputs in parts
  bool unfit = false;           // exits at once, with the code of a broken device
  std::string problem;          // what is told to be wrong with its device
  std::uint64_t pinned = 0;     // pins that were made, in all lives
  // Whether the worker of another GPU that serves `runtime` holds this pin now. If it is empty, this worker copies
  // from the host alone. It is asked when a copy ends.
  std::function<bool(std::uint32_t gpu, const std::string& runtime, std::uint64_t pin)> peer_pins;
  // The bytes of a tensor that the worker of another GPU that serves `runtime` has pinned; nothing: it has not (any more).
  std::function<std::optional<std::string>(std::uint32_t gpu, const std::string& runtime, std::uint64_t pin)>
      peer_tensor;
  // Whether a worker of another GPU, which sends this broadcast, has all of it; nothing: it does not send it
  // (any more). Empty: this one takes part in none.
  std::function<std::optional<bool>(std::uint32_t gpu, const std::string& meeting)> peer_sends;
  // Another life begins.
  void Begin() {
    life = {};
    life.up = true;
    if (meters) life.page = meters->NewPage();
  }
  // The device's memory with the activations of the runs under way.
  void Fill(Bytes running) { fullest = std::max(fullest, used + running); }
  absl::StatusOr<proto::WorkerOutcome> Pin(const proto::PinOrder& order);
  void Unpin(std::uint64_t pin) {
    life.pins.erase(pin);
    life.tensors.Unpin(pin);
  }
  // All of the tensor has come; Unavailable: it is not pinned any more.
  absl::Status Pull(const proto::PullOrder& pull);
  void Release(const proto::ReleaseOrder& order) {
    if (!never_releases) life.tensors.Drop(order);
  }
  void Touch(const std::string& digest) { touched.emplace(life.runtime, digest); }
  // Whom the worker serves is known: what the last one left for this key is on the GPU.
  void TakeOver() {
    life.resident = kept.TakeOver(life.runtime);
    for (const auto& [digest, bytes] : life.resident) used += bytes;
  }
  // The model is on the GPU, and not found to be spoiled at its first use.
  bool Whole(const std::string& digest) {
    const auto found = life.resident.find(digest);
    if (found == life.resident.end()) return false;
    if (!kept.Refuted(digest)) return true;
    used -= found->second;
    life.resident.erase(found);
    return false;
  }
  // As a worker counts before it answers.
  void CountRun(const proto::RunOrder& run, Duration computed) const {
    if (meters) meters->CountRun(life.page, run, computed);
  }
  void CountMoved(const std::string& key, Bytes moved) const {
    if (meters) meters->Count(life.page, key, 0, 0, moved.count());
  }
  // Dies now; what it held is gone, but for what is kept. Set by the link.
  std::function<void()> kill;
};

std::unique_ptr<WorkerLink> MakeFakeWorkerLink(caf::actor_system& system, FakeWorkerProfile profile,
                                               std::shared_ptr<FakeWorkerControl> control);

}  // namespace troupe::actors
