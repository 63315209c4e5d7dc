// What an order to a worker was given for: its outcome is told to the part that gave it. Plain data.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <variant>

#include "node/events.hpp"
#include "node/models/peer_copy_table.hpp"
#include "node/models/swap_log.hpp"
#include "proto/worker.pb.h"

namespace troupe::node {

// `life` of each: the incarnation of the worker to which the order was given.

struct NoPurpose {};  // its outcome changes nothing
struct RunOrdered {
  HeldStart start{};
};
struct SwapInOrdered {
  HeldStart start{};
  std::uint64_t life = 0;
  ModelWas source = ModelWas::kHost;
  PeerCopyTable::Ticket copy = 0;  // from another GPU
  ImagePtr image{};                // kept until the worker has read it
};
struct PinOrdered {  // of a model that another GPU copies
  HeldStart start{};
  PeerCopyTable::Ticket copy = 0;
};
struct EvictionOrdered {
  GpuIndex gpu = 0;
  ModelNumber model{};
  std::uint64_t life = 0;
  bool with_states = false;  // they were written back before
};
struct PrepareOrdered {
  GpuIndex gpu = 0;
  ModelNumber copy{};
  std::uint64_t life = 0;
  std::uint64_t held = 0;  // the life of the held model (HeldModel)
  std::uint32_t rows = 1;  // of the plan; more than one: for runs that answer several requests
};
struct OrphanEvicted {
  GpuIndex gpu = 0;
  proto::ResidentModel orphan{};
  std::uint64_t life = 0;
};
struct FaultOrdered {
  GpuIndex gpu = 0;
};
struct TensorExported {  // for an input of a request, or (not 0) for a question of a router's
  RequestId request{};
  std::uint64_t question = 0;
  int index = 0;  // of the input, or among the question's tensors
};
// A part of a kept tensor on another GPU.
struct TensorCopyKey {
  std::uint64_t tensor = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  GpuIndex gpu = 0;  // that has, or is to have, the copy
  auto operator<=>(const TensorCopyKey&) const = default;
};
struct TensorPinned {
  TensorCopyKey key{};
};
struct TensorPulled {
  TensorCopyKey key{};
  std::uint64_t pin = 0;     // at the worker that keeps the tensor
  std::uint64_t number = 0;  // of the copy
};

// --- states that are written back ---
struct RecoveryOrdered {  // of a state that a worker has since before this daemon began
  GpuIndex gpu = 0;
  ModelNumber model{};
  StateNumber key{};
};
struct SequencesRecovered {  // the same of a function's sequences
  GpuIndex gpu = 0;
  ModelNumber model{};
  StateNumber function{};
  std::uint64_t life = 0;
};
struct StateLeaving {  // of a sequence, for the room that it has on the GPU or in memory
  GpuIndex gpu = 0;
  ModelNumber model{};
  StateNumber key{};
  std::uint64_t life = 0;
};
struct OrphanWrittenBack {
  GpuIndex gpu = 0;
  proto::ResidentModel orphan{};
  std::uint64_t life = 0;
};
struct EvictionWrittenBack {
  GpuIndex gpu = 0;
  ModelNumber model{};
  std::uint64_t life = 0;
};
struct RunWrittenBack {
  HeldStart start{};
  std::shared_ptr<proto::WorkerOutcome> run{};
};
using WriteBackPurpose = std::variant<RecoveryOrdered, SequencesRecovered, StateLeaving, OrphanWrittenBack,
                                      EvictionWrittenBack, RunWrittenBack>;

using OrderPurpose =
    std::variant<NoPurpose, RunOrdered, SwapInOrdered, PinOrdered, EvictionOrdered, PrepareOrdered,
                 OrphanEvicted, FaultOrdered, TensorExported, TensorPinned, TensorPulled, WriteBackPurpose>;

}  // namespace troupe::node
