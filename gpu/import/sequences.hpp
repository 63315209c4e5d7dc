// Sequences and optionals of ONNX, which exporters write for lists of tensors. Where the file tells which tensors a
// sequence has, steps on tensors stand for those on the sequence; nothing else knows sequences.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "gpu/import/graph.hpp"

namespace troupe::gpu {

// An operator of sequences or optionals that this pass resolves where it can; ConcatFromSequence is one.
[[nodiscard]] bool IsSequenceOperator(std::string_view op, int opset);

// Writes Identity, Split, Squeeze, Unsqueeze, Concat and constants for the steps whose sequence and position are known.
// True: there was such a step. Steps that make a sequence stay, and die when no step reads them. Errors: a position outside the
// sequence, a sequence of no tensors where some are needed, more elements than 65,536 in all.
[[nodiscard]] absl::StatusOr<bool> ResolveSequences(Graph& graph);

}  // namespace troupe::gpu
