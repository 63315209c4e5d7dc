// FAKE STATES: the states of functions in a fake worker. Private to fake_worker.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "actors/seams/fake_worker_link.hpp"
#include "proto/worker.pb.h"

namespace troupe::actors {

using FakeStates = std::map<std::string, FakeWorkerLife::State>;  // by function

// Those that come with their model.
void TakeStates(const proto::SwapInOrder& order, FakeStates& states);
// Those of a model that runs have changed since they were last asked for.
[[nodiscard]] proto::WorkerOutcome TakeChangedStates(FakeStates& states, const std::string& digest);
// What a write-back answers: the state of the function that it names, or all that have changed. Null: it
// names one that is not here.
[[nodiscard]] std::optional<proto::WorkerOutcome> TakeStatesFor(FakeStates& states,
                                                                const proto::WriteBackOrder& order);
// The state of a fake function is the number of its runs, which the answer tells.
void CountRun(FakeWorkerLife::State& state, proto::RunOutcome& run);
// A planted error: the functions of one model have one state, that of this function.
void ShareState(const std::string& function, FakeStates& states);

}  // namespace troupe::actors
