// A request from its arrival until it is answered. Plain data.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "node/events.hpp"
#include "node/models/swap_log.hpp"
#include "node/requests/run_limit.hpp"
#include "proto/request.pb.h"
#include "proto/worker.pb.h"

namespace troupe::node {

struct HeldRequest {
  proto::SubmitRequest message{};
  Ask ask = 0;
  StateNumber sequence{};  // whose state it uses; none: it belongs to no sequence
  Time expiry{};
  bool awaits_inputs =
      false;                // they come from another host or GPU; the scheduler does not know the request yet
  std::size_t exports = 0;  // of its inputs, that are under way
  // Kept tensors that are exported or copied for the request, as its router named them, by their index among its inputs.
  std::map<int, proto::KeptTensor> kept_elsewhere{};
  bool elsewhere = false;     // some lie on another host, and are brought behind those
  bool brought = false;       // they came from there, and lie in this daemon's arena
  std::uint32_t waiting = 0;  // requests that waited at the node when it came
  bool from_disk = false;     // its model was not in the host region when it came
  ModelNumber trial{};        // the node's own, of this model: it has no question; none: of a router
  bool refill = false;        // a trial that brings back what a dead worker held
  std::optional<proto::GpuSharing>
      profiled{};         // a run of a profile's trial: on this share, whatever its function has
  NodeRequest request{};  // as the scheduler will learn of it, while it awaits its inputs
  // Of its current dispatch; serial 0: none.
  std::uint64_t serial = 0;
  GpuIndex gpu = kNoGpu;
  RequestId leader{};                // the request whose run answers it, mostly itself
  std::vector<RequestId> members{};  // that its run answers besides
  std::uint32_t batch = 0;           // requests that its last run answered; 0: it has not run
  std::uint64_t run_sequence = 0;    // 0: its run was not ordered yet
  bool unwanted = false;             // its router does not wait for it any more
  bool cancelled = false;            // its run goes on as long as another request of it wants an answer
  Time dispatched{};
  std::uint32_t attempt = 0;
  ModelWas was = ModelWas::kResident;
  proto::WorkerOutcome swap{};
  proto::WorkerOutcome run{};
  RunLimit limit{};  // that its run was ordered with
  // What its run was ordered with of a GPU's SMs; 0: its function was not known.
  std::uint32_t sm_percent = 0;
  bool scaled = false;         // its function's instances follow their load
  bool spoiled_state = false;  // its run went well, and what it left could not be kept
};

}  // namespace troupe::node
