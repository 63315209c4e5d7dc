// Inference inputs that come as bytes, not as JSON: behind it, or by shared memory.
#include <cstring>

#include "base/status.hpp"
#include "gateway/infer_request.hpp"
#include "gateway/tensor_type.hpp"
#include "gateway/text.hpp"

namespace troupe::gateway {

namespace {

// The shape of a raw request: every free dimension but the last is 1, the last takes what the bytes say.
absl::Status DeduceShape(proto::TensorSpec& spec, std::uint64_t raw_bytes) {
  int last_free = -1;
  for (int i = 0; i < spec.shape_size(); ++i) {
    if (spec.shape(i) >= 0) continue;
    last_free = i;
    spec.set_shape(i, 1);
  }
  if (last_free < 0 || spec.type() == proto::BYTES) return absl::OkStatus();
  TROUPE_ASSIGN_OR_RETURN(const Bytes one, TensorSize(spec));
  if (one.count() > 0 && raw_bytes % one.count() == 0) {
    spec.set_shape(last_free, static_cast<std::int64_t>(raw_bytes / one.count()));
    return absl::OkStatus();
  }
  spec.set_shape(last_free, -1);
  return absl::InvalidArgumentError(Cat("input '", spec.name(), "': the body has ", raw_bytes, " bytes, and ",
                                        TypeName(spec.type()), " ", ShapeText(spec), " takes a multiple of ",
                                        one.count()));
}

}  // namespace

absl::StatusOr<InputBuffer> ReserveExactly(InferenceService& service, Bytes size) {
  if (size.count() == 0) return InputBuffer::Inline("");
  TROUPE_ASSIGN_OR_RETURN(InputBuffer buffer, service.ReserveInput(size));
  if (buffer.bytes().size() == size.count()) return buffer;
  return absl::InternalError(Cat("a place of ", size.count(), " bytes was asked for an input, and one of ",
                                 buffer.bytes().size(), " was given"));
}

absl::StatusOr<ParsedInfer> ParseRawRequest(const FunctionInfo& function, InferenceService& service,
                                            std::uint64_t raw_bytes) {
  if (function.inputs.size() != 1) {
    return absl::InvalidArgumentError(Cat(
        "a raw request needs a function with one input; '", function.name, "' has ", function.inputs.size(),
        ": ", Join(function.inputs, ", ", [](const auto& input) { return std::string_view(input.name()); })));
  }
  ParsedInfer parsed;
  parsed.binary_default = true;
  proto::TensorSpec spec = function.inputs.front();
  TROUPE_RETURN_IF_ERROR(DeduceShape(spec, raw_bytes));
  const bool is_string = spec.type() == proto::BYTES;
  TROUPE_ASSIGN_OR_RETURN(const Bytes size,
                          is_string ? absl::StatusOr<Bytes>(Bytes(raw_bytes)) : TensorSize(spec));
  TROUPE_ASSIGN_OR_RETURN(const std::uint64_t count, ElementCount(spec));
  if (size.count() != raw_bytes || (is_string && (count != 1 || raw_bytes > 0xFFFFFFFFU))) {
    return absl::InvalidArgumentError(
        Cat("input '", spec.name(), "': a raw body of ", raw_bytes, " bytes does not fit ",
            TypeName(spec.type()), " ", ShapeText(spec),
            is_string ? "; a raw BYTES input has one element" : Cat(", which has ", size.count())));
  }
  const Bytes prefix(is_string ? sizeof(std::uint32_t) : 0);
  TROUPE_ASSIGN_OR_RETURN(InputBuffer buffer, ReserveExactly(service, size + prefix));
  std::span<std::byte> span = buffer.bytes();
  if (is_string) {
    const auto length = static_cast<std::uint32_t>(raw_bytes);
    std::memcpy(span.data(), &length, sizeof(length));
    span = span.subspan(sizeof(length));
  }
  if (!span.empty()) parsed.raw_inputs.push_back({0, span});
  parsed.call.inputs.push_back({std::move(spec), std::move(buffer)});
  return parsed;
}

absl::Status CopySharedInputs(ParsedInfer& parsed, SharedMemory& memory) {
  for (SharedInput& shared : parsed.shared_inputs) {
    const InferInput& input = parsed.call.inputs[shared.input];
    if (const absl::Status status = shared.range.Read(input.data.bytes()); !status.ok())
      return absl::Status(status.code(), Cat("input '", input.spec.name(), "': ", Message(status)));
    memory.CountIn(shared.range.size().count());
    shared.range = SharedRange();  // so that its region can be unregistered while the function runs
  }
  return absl::OkStatus();
}

absl::Status CheckRawInputs(const ParsedInfer& parsed) {
  const auto check = [&parsed](const auto& one) {
    const InferInput& input = parsed.call.inputs[one.input];
    return CheckRawTensor(input.spec, input.data.bytes());
  };
  for (const RawInput& raw : parsed.raw_inputs) TROUPE_RETURN_IF_ERROR(check(raw));
  for (const SharedInput& shared : parsed.shared_inputs) TROUPE_RETURN_IF_ERROR(check(shared));
  return absl::OkStatus();
}

}  // namespace troupe::gateway
