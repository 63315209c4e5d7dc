// FAKE STATES: the states of functions in a fake worker. Private to fake_worker.
#pragma once

#include <map>
#include <string>

#include "actors/seams/fake_worker_link.hpp"
#include "proto/worker.pb.h"

namespace troupe::actors {

using FakeStates = std::map<std::string, FakeWorkerLife::State>;  // by function

// Those that come with their model.
void TakeStates(const proto::SwapInOrder& order, FakeStates& states);
// Those of a model that runs have changed since they were last asked for.
[[nodiscard]] proto::WorkerOutcome TakeChangedStates(FakeStates& states, const std::string& digest);
// The state of a fake function is the number of its runs, which the answer tells.
void CountRun(FakeWorkerLife::State& state, proto::RunOutcome& run);

}  // namespace troupe::actors
