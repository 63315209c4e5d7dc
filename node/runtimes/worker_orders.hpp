// ORDERS: a scheduler's dispatch as orders for a worker, and a worker's outcomes as events for the scheduler.
// Data to data: no actor, no clock.
#pragma once

#include <cstdint>
#include <string>

#include "node/request.hpp"
#include "proto/function.pb.h"
#include "proto/request.pb.h"
#include "proto/worker.pb.h"

namespace troupe::node {

[[nodiscard]] RequestId IdOf(const proto::RequestId& id);
[[nodiscard]] absl::Status StatusOf(const proto::WorkerOutcome& outcome);

[[nodiscard]] proto::WorkerOrder EvictOrderFor(const std::string& digest);
// `function`: whose state; "": of all functions of the model.
[[nodiscard]] proto::WorkerOrder WriteBackOrderFor(const std::string& digest, const std::string& function);
// The state leaves the device as it is, or (`prefix`) all of the model whose names begin so.
[[nodiscard]] proto::WorkerOrder DropOrderFor(const std::string& digest, const std::string& function,
                                              bool prefix = false);
[[nodiscard]] proto::WorkerOrder PinOrderFor(const std::string& digest);
[[nodiscard]] proto::WorkerOrder UnpinOrderFor(std::uint64_t pin);
// From where the dispatch says; the host copy is what the model is, wherever its weights come from.
[[nodiscard]] proto::WorkerOrder SwapInOrderFor(const Dispatch& dispatch, const proto::HostCopy& copy,
                                                Time now);
[[nodiscard]] proto::WorkerOrder RunOrderFor(const Dispatch& dispatch, const proto::SubmitRequest& request,
                                             const proto::HostCopy& copy, Time now);
// The plan that is made ready ahead of the first request: open leading dimensions (-1) are `rows`, and every
// other open dimension has the function's likely size.
[[nodiscard]] proto::WorkerOrder PrepareOrderFor(const proto::FunctionRecord& function,
                                                 const proto::HostCopy& copy, std::uint32_t rows = 1);

// What a run took of its GPU's memory beside the weights; zero when the worker does not say it, or says more than any GPU has.
[[nodiscard]] Bytes DeviceBytesOf(const proto::RunOutcome& run);

// What a run had of its GPU's time while it computed: without what runs beside it had. Between zero and the time that it
// computed, whatever the worker says.
[[nodiscard]] Duration GpuTimeOf(const proto::RunOutcome& run);
// How the swap-in and the run of one dispatch went, together.
[[nodiscard]] RunDone RunDoneFor(const Dispatch& dispatch, const proto::WorkerOutcome& swap,
                                 const proto::WorkerOutcome& run);
// DataLoss for sizes that no device has: the worker is not trusted, and sums of such numbers would wrap to
// small ones.
[[nodiscard]] absl::Status CheckSizes(const proto::PreparedOutcome& prepared);
// The bytes that an outcome's NoFit says are there.
[[nodiscard]] bool IsNoFit(const proto::WorkerOutcome& outcome);

// The answer to a request that ended at this node; `run` is its last outcome (empty when it never ran).
[[nodiscard]] proto::SubmitReply ReplyFor(const Finished& finished, const proto::SubmitRequest& request,
                                          const proto::WorkerOutcome& swap, const proto::WorkerOutcome& run,
                                          const std::string& node);
// Slices of `run`, of all its requests, that `reply` does not carry (unwanted outputs), as an order that frees them; and
// the slices that it carries.
[[nodiscard]] proto::ReleaseOrder UnsentSlices(const proto::WorkerOutcome& run,
                                               const proto::InferReply& reply);
[[nodiscard]] proto::ReleaseOrder SentSlices(const proto::InferReply& reply);
// Slices of the states that came with an outcome.
[[nodiscard]] proto::ReleaseOrder StateSlices(const proto::WorkerOutcome& outcome);

}  // namespace troupe::node
