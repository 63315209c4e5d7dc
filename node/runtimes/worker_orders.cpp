#include "node/runtimes/worker_orders.hpp"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/wire_status.hpp"
#include "proto/open_dimension.hpp"

namespace troupe::node {

namespace {

constexpr Bytes kMostOfADevice = GiB(1u << 20);
// A window of quotas is shorter.
constexpr Duration kLongestPause = std::chrono::minutes(1);

Duration Took(const proto::WorkerOutcome& outcome) {
  return Duration(outcome.end_ns() - outcome.begin_ns());
}

// What runs beside it had of the GPU's time while it computed.
Duration OthersOf(const proto::RunOutcome& run) {
  return Duration(std::clamp<std::int64_t>(run.others_ns(), 0, std::max<std::int64_t>(run.compute_ns(), 0)));
}

void Fill(const Finished& finished, const absl::Status& status, proto::InferReply& reply) {
  SetStatus(status, reply);
  reply.set_attempts(finished.attempts);
  reply.set_hit(finished.hit);
  if (finished.gpu != kNoGpu) reply.set_gpu(finished.gpu);
}

// In the order asked for, or the model's own.
absl::Status CopyOutputs(const proto::SubmitRequest& request, const proto::WorkerOutcome& run,
                         proto::InferReply& reply) {
  if (request.outputs().empty()) {
    *reply.mutable_outputs() = run.run().outputs();
    return absl::OkStatus();
  }
  for (const auto& name : request.outputs()) {
    const auto& outputs = run.run().outputs();
    const auto it = std::find_if(outputs.begin(), outputs.end(),
                                 [&](const proto::Tensor& tensor) { return tensor.spec().name() == name; });
    if (it == outputs.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("function '", request.function().name(), "' has no output '", name, "'"));
    }
    *reply.add_outputs() = *it;
  }
  return absl::OkStatus();
}

}  // namespace

RequestId IdOf(const proto::RequestId& id) {
  return {id.router(), id.sequence()};
}

absl::Status StatusOf(const proto::WorkerOutcome& outcome) {
  return StatusIn(outcome);
}

proto::WorkerOrder WriteBackOrderFor(const std::string& digest, const std::string& function) {
  proto::WorkerOrder order;
  order.mutable_write_back()->set_digest(digest);
  order.mutable_write_back()->set_function(function);
  return order;
}

proto::WorkerOrder DropOrderFor(const std::string& digest, const std::string& function, bool prefix) {
  auto order = WriteBackOrderFor(digest, function);
  order.mutable_write_back()->set_prefix(prefix);
  order.mutable_write_back()->set_drop(true);
  return order;
}

proto::WorkerOrder EvictOrderFor(const std::string& digest) {
  proto::WorkerOrder order;
  order.mutable_evict()->set_digest(digest);
  return order;
}

proto::WorkerOrder PinOrderFor(const std::string& digest) {
  proto::WorkerOrder order;
  order.mutable_pin()->set_digest(digest);
  return order;
}

proto::WorkerOrder UnpinOrderFor(std::uint64_t pin) {
  proto::WorkerOrder order;
  order.mutable_unpin()->set_pin(pin);
  return order;
}

proto::WorkerOrder SwapInOrderFor(const Dispatch& dispatch, const proto::HostCopy& copy, Time now) {
  proto::WorkerOrder order;
  auto& swap = *order.mutable_swap_in();
  *swap.mutable_model() = copy;
  if (dispatch.source == SwapSource::kPeer) swap.set_from_gpu(dispatch.peer);
  if (dispatch.deadline != Time::max()) swap.set_deadline_in_ns((dispatch.deadline - now).count());
  return order;
}

proto::WorkerOrder RunOrderFor(const Dispatch& dispatch, const proto::SubmitRequest& request,
                               const proto::HostCopy& copy, Time now) {
  proto::WorkerOrder order;
  auto& run = *order.mutable_run();
  run.set_digest(copy.digest());
  run.set_by_layer(dispatch.source == SwapSource::kLayers);
  // A plan for other shapes than those prepared at adoption is made when the first such request comes.
  *run.mutable_model() = copy;
  *run.mutable_inputs() = request.inputs();
  run.set_priority(request.priority());
  // A request that is late already still goes: the worker drops it, and the answer comes the usual way.
  const auto remaining = dispatch.expiry == Time::max() ? Duration::max() : dispatch.expiry - now;
  run.set_timeout_ns(std::max<Duration::rep>(1, remaining.count()));
  if (dispatch.deadline != Time::max()) run.set_deadline_in_ns((dispatch.deadline - now).count());
  run.set_stateful(dispatch.state.text());
  return order;
}

namespace {

// Of an open dimension that is not an input's first; `index`: among those of all inputs.
std::uint32_t LikelySize(const proto::FunctionRecord& function, int index) {
  if (index < function.likely_sizes_size()) return std::max<std::uint32_t>(function.likely_sizes(index), 1);
  return std::max<std::uint32_t>(function.likely_size(), 1);
}

// Of an input's first dimension, for one row.
std::uint32_t LikelyRows(const proto::FunctionRecord& function, int input) {
  return input < function.likely_rows_size() ? std::max<std::uint32_t>(function.likely_rows(input), 1) : 1;
}

}  // namespace

proto::WorkerOrder PrepareOrderFor(const proto::FunctionRecord& function, const proto::HostCopy& copy,
                                   std::uint32_t rows) {
  proto::WorkerOrder order;
  auto& prepare = *order.mutable_prepare();
  *prepare.mutable_model() = copy;
  prepare.set_precision(function.precision());
  *prepare.mutable_inputs() = function.inputs();
  int open = 0;
  for (int i = 0; i < prepare.inputs_size(); ++i) {
    auto& input = *prepare.mutable_inputs(i);
    if (proto::LeadingIsOpen(input)) input.set_shape(0, std::int64_t{rows} * LikelyRows(function, i));
    for (auto& size : *input.mutable_shape())
      if (size < 0) size = LikelySize(function, open++);
  }
  return order;
}

absl::Status CheckSizes(const proto::PreparedOutcome& prepared) {
  const Bytes weights(prepared.weights_bytes()), activation(prepared.activation_bytes());
  if (weights <= kMostOfADevice && activation <= kMostOfADevice) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("its worker says that the weights take ", weights.count(),
                                          " bytes and a run ", activation.count(), ", and no device has ",
                                          FormatBytes(kMostOfADevice), ": what was known before is used; ",
                                          "look at this worker's log, and restart it"));
}

bool IsNoFit(const proto::WorkerOutcome& outcome) {
  return outcome.has_no_fit();
}

Bytes DeviceBytesOf(const proto::RunOutcome& run) {
  const Bytes bytes(run.device_bytes());
  return bytes <= kMostOfADevice ? bytes : Bytes(0);
}

Duration GpuTimeOf(const proto::RunOutcome& run) {
  return Duration(std::max<std::int64_t>(run.compute_ns(), 0)) - OthersOf(run);
}

RunDone RunDoneFor(const Dispatch& dispatch, const proto::WorkerOutcome& swap,
                   const proto::WorkerOutcome& run) {
  RunDone done;
  done.gpu = dispatch.gpu;
  done.request = dispatch.request;
  done.status = StatusOf(run);
  done.took = Took(run) - OthersOf(run.run());
  done.brought_state = dispatch.bring_state && swap.code() == 0 && swap.end_ns() != 0;
  done.pause = std::clamp(Duration(run.run().next_turn_in_ns()), Duration::zero(), kLongestPause);
  done.waited_for_weights = run.run().last_group_ns() != 0;
  if (!done.waited_for_weights) done.computed = GpuTimeOf(run.run());
  // A run that did not begin in time has not computed.
  done.cut = absl::IsDeadlineExceeded(done.status) && run.run().compute_ns() > 0;
  if (swap.code() == 0 && swap.end_ns() != 0) done.since_swap = Duration(run.end_ns() - swap.begin_ns());
  const auto& short_of_room = IsNoFit(swap) ? swap : run;
  if (IsNoFit(short_of_room)) {
    done.end = RunEnd::kNoFit;
    done.free = Bytes(short_of_room.no_fit().free());
    done.largest = Bytes(short_of_room.no_fit().largest());
  } else if ((dispatch.source == SwapSource::kPeer || dispatch.source == SwapSource::kBroadcast) &&
             swap.code() != 0) {
    done.end = RunEnd::kNotResident;  // the other GPU is gone: the host has the model, too
  } else if (absl::IsNotFound(done.status) || absl::IsAborted(done.status)) {
    done.end = absl::IsNotFound(done.status) ? RunEnd::kNotResident : RunEnd::kNoState;
    if (swap.code() != 0) {
      // The run was refused because the swap-in failed: that is what went wrong.
      done.end = RunEnd::kRan;
      done.status = StatusOf(swap);
    }
  }
  return done;
}

proto::SubmitReply ReplyFor(const Finished& finished, const proto::SubmitRequest& request,
                            const proto::WorkerOutcome& swap, const proto::WorkerOutcome& run,
                            const std::string& node) {
  proto::SubmitReply out;
  if (finished.kind == FinishKind::kBounced) {
    out.mutable_bounced()->set_reason(finished.bounce);
    out.mutable_bounced()->set_message(std::string(finished.status.message()));
    return out;
  }
  auto& reply = *out.mutable_served();
  reply.set_node(node);
  *reply.mutable_function() = request.function();
  auto status = finished.status;
  if (finished.kind == FinishKind::kServed) status = CopyOutputs(request, run, reply);
  if (!status.ok()) reply.clear_outputs();
  Fill(finished, status, reply);
  auto& times = *reply.mutable_times();
  times.set_node_queue_ns(finished.queued.count());
  times.set_swap_ns(Took(swap).count());
  times.set_compute_ns(run.run().compute_ns());
  times.set_others_ns(run.run().others_ns());
  times.set_copy_ns(run.run().copy_in_ns() + run.run().copy_out_ns());
  return out;
}

proto::ReleaseOrder SentSlices(const proto::InferReply& reply) {
  proto::ReleaseOrder release;
  for (const auto& output : reply.outputs()) {
    if (output.data().has_arena()) *release.add_slices() = output.data().arena();
    if (output.data().has_kept()) release.add_kept(output.data().kept().number());
  }
  return release;
}

proto::ReleaseOrder UnsentSlices(const proto::WorkerOutcome& run, const proto::InferReply& reply) {
  std::set<std::uint64_t> sent;
  std::set<std::uint64_t> kept;
  for (const auto& output : reply.outputs()) {
    if (output.data().has_arena()) sent.insert(output.data().arena().slice());
    if (output.data().has_kept()) kept.insert(output.data().kept().number());
  }
  proto::ReleaseOrder release;
  const auto add = [&](const auto& outputs) {
    for (const auto& output : outputs) {
      const auto& data = output.data();
      if (data.has_arena() && !sent.contains(data.arena().slice())) *release.add_slices() = data.arena();
      if (data.has_kept() && !kept.contains(data.kept().number())) release.add_kept(data.kept().number());
    }
  };
  add(run.run().outputs());
  for (const auto& member : run.run().members()) add(member.outputs());
  return release;
}

proto::ReleaseOrder StateSlices(const proto::WorkerOutcome& outcome) {
  proto::ReleaseOrder release;
  for (const auto& image : outcome.state().states())
    for (const auto& tensor : image.tensors())
      if (tensor.data().has_arena()) *release.add_slices() = tensor.data().arena();
  return release;
}

}  // namespace troupe::node
