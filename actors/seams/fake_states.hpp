// FAKE STATES: the states of functions in a fake worker. Private to fake_worker.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "actors/seams/fake_worker_link.hpp"
#include "proto/worker.pb.h"

namespace troupe::actors {

using FakeStates = std::map<std::string, FakeWorkerLife::State>;  // by function

// The states that come with their model.
// `by_model`: a mistake on purpose (FakeWorkerControl::states_by_model).
void TakeStates(const proto::SwapInOrder& order, FakeStates& states, bool by_model = false);
// Those of a model that runs have changed since they were last asked for.
[[nodiscard]] proto::WorkerOutcome TakeChangedStates(FakeStates& states, const std::string& digest);
// What a write-back answers: the state of the function that it names, or all that have changed. Null: it
// names a state that is not here.
[[nodiscard]] std::optional<proto::WorkerOutcome> TakeStatesFor(FakeStates& states,
                                                                const proto::WriteBackOrder& order,
                                                                bool by_model = false);
// The state of a fake function is the number of its runs, which the answer tells.
void CountRun(FakeWorkerLife::State& state, proto::RunOutcome& run);

}  // namespace troupe::actors
