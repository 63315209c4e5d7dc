// FAKE ANSWERS: what the runs of a fake worker give: each output repeats its input, so that a test can tell
// whose answer it is.
#pragma once

#include <cstdint>
#include <string>

#include "base/units.hpp"
#include "proto/worker.pb.h"

namespace troupe::actors {

inline void AddOutputs(const google::protobuf::RepeatedPtrField<proto::Tensor>& inputs,
                       google::protobuf::RepeatedPtrField<proto::Tensor>& outputs) {
  for (const auto& input : inputs) {
    auto& output = *outputs.Add();
    output = input;
    output.mutable_spec()->set_name("out_" + input.spec().name());
  }
}

// Returns how many requests the run answers. `swap_members`: a mistake on purpose, by which the first two requests of a
// batch get each other's outputs.
inline int AnswerEach(const proto::RunOrder& order, bool swap_members, proto::RunOutcome& outcome) {
  AddOutputs(order.inputs(), *outcome.mutable_outputs());
  for (const auto& member : order.members())
    AddOutputs(member.inputs(), *outcome.add_members()->mutable_outputs());
  if (swap_members && outcome.members_size() > 0)
    outcome.mutable_outputs()->Swap(outcome.mutable_members(0)->mutable_outputs());
  return 1 + outcome.members_size();
}

// Outputs of a model whose weights are not what they should be.
inline void Spoil(proto::RunOutcome& outcome) {
  for (auto& output : *outcome.mutable_outputs()) output.mutable_data()->set_inlined("spoiled");
}

// What a worker answers that has no room for a model.
inline proto::WorkerOutcome NoFitAs(Bytes free) {
  proto::WorkerOutcome outcome;
  outcome.mutable_no_fit()->set_free(free.count());
  outcome.mutable_no_fit()->set_largest(free.count());
  return outcome;
}

// What a worker answers that serves this key and has pinned so many bytes.
inline proto::WorkerOutcome PinnedAs(std::uint64_t pin, const std::string& runtime, Bytes size) {
  proto::WorkerOutcome outcome;
  outcome.mutable_pin()->set_pin(pin);
  proto::PinnedMemory& memory = *outcome.mutable_pin()->mutable_memory();
  memory.mutable_memory()->set_arena(pin);
  memory.mutable_memory()->set_socket(runtime);
  memory.add_ranges()->set_length(size.count());
  return outcome;
}

}  // namespace troupe::actors
