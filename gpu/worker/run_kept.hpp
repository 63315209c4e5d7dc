// RUN KEPT: how a run reads tensors that this worker keeps, and leaves some of its own (gpu/worker/tensor_store.hpp).
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "gpu/worker/run.hpp"
#include "gpu/worker/tensor_store.hpp"

namespace troupe::gpu {

// As the run is accepted: it uses the kept tensors among its inputs until LeaveKept, which comes once. DataLoss: one is
// not here.
absl::Status UseKept(TensorStore& store, Run& run);
void LeaveKept(TensorStore& store, Run& run);

// As the run is staged, before its memory is laid out: room for the outputs that are to stay, as far as there is room for
// them on the device and they are larger than `inlined`.
void ReserveKept(TensorStore& store, Run& run, Bytes inlined);
// Once the run's memory is laid out: its kept tensors in the place of the inputs and outputs that they are.
void PlaceKept(Run& run);
// The run is answered well (`kept`): what it left is there for others. Else its room goes back.
void SettleKept(TensorStore& store, Run& run, bool kept);

// The kept tensor from which the run reads tensor number `tensor` of its order's inputs; null: no worker keeps that.
[[nodiscard]] const Run::KeptInput* FindKeptInput(const Run& run, int tensor);
// The kept tensor that the run reads where it lies, as its input of this name; null: the input is copied.
[[nodiscard]] const Run::KeptInput* FindReadInPlace(const Run& run, const std::string& input);
// The kept tensor that this output becomes; null: it leaves the device, or is state.
[[nodiscard]] const Run::KeptOutput* FindKeptOutput(const Run& run, std::size_t output);
// The output is state, or is kept: it does not leave the device with the run.
[[nodiscard]] bool StaysOnDevice(const Run& run, std::size_t output);

}  // namespace troupe::gpu
