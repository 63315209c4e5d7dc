// One inference request of the Open Inference Protocol, with the binary tensor extension: from the JSON of
// the body to an InferCall whose inputs already lie where they will be read.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gateway/inference_service.hpp"
#include "gateway/shared_client.hpp"

namespace troupe::gateway {

// How one output was asked for.
struct OutputWish {
  std::string name;
  bool binary = false;
  SharedRange shared{};  // not valid: it goes into the answer
};

// An input whose bytes follow the JSON.
struct RawInput {
  std::size_t input = 0;      // index into InferCall::inputs
  std::span<std::byte> span;  // where they go; never empty
};

// An input whose bytes lie in shared memory.
struct SharedInput {
  std::size_t input = 0;  // index into InferCall::inputs
  SharedRange range;      // never empty
};

// What a body's JSON said. `call.function`, `call.version` are the caller's to fill in.
struct ParsedInfer {
  InferCall call;
  std::vector<RawInput> raw_inputs;  // in the order in which they follow
  std::vector<SharedInput> shared_inputs;
  std::vector<OutputWish> outputs;  // empty: all, as `binary_default` says
  bool binary_default = false;
};

// Reads the JSON part of a request for `function` and reserves a place for every input. Inputs given as JSON
// are complete afterwards; the places of `raw_inputs` are to be filled with the `raw_bytes` bytes that follow
// the JSON (their sum is checked here), those of `shared_inputs` by CopySharedInputs, and both are then checked
// by CheckRawInputs. kInvalidArgument says what was expected. `client` null: it has no shared memory.
[[nodiscard]] absl::StatusOr<ParsedInfer> ParseInferRequest(std::string_view json,
                                                            const FunctionInfo& function,
                                                            InferenceService& service,
                                                            std::uint64_t raw_bytes,
                                                            const SharedClient* client = nullptr);

// A raw request (Inference-Header-Content-Length: 0): the whole body is the function's only input. Its shape
// comes from the declaration: the first of several free dimensions is 1, the last free one follows from the
// number of bytes; a BYTES input has one element, which is the body. Outputs are answered in binary.
[[nodiscard]] absl::StatusOr<ParsedInfer> ParseRawRequest(const FunctionInfo& function,
                                                          InferenceService& service, std::uint64_t raw_bytes);

// A place of exactly `size` bytes; nothing is asked for an empty one.
[[nodiscard]] absl::StatusOr<InputBuffer> ReserveExactly(InferenceService& service, Bytes size);

// Copies the inputs that lie in shared memory to their places: once, and from then on the client cannot change
// what is checked, computed, or computed again.
[[nodiscard]] absl::Status CopySharedInputs(ParsedInfer& parsed, SharedMemory& memory);

// After the places are filled: what only the bytes can tell (BYTES lengths, BOOL values).
[[nodiscard]] absl::Status CheckRawInputs(const ParsedInfer& parsed);

}  // namespace troupe::gateway
