// How a status reaches an HTTP client: Triton's codes, where Triton has one.
//   kInvalidArgument, kOutOfRange, kFailedPrecondition, kAlreadyExists -> 400    kNotFound -> 404
//   kResourceExhausted, kUnavailable, kAborted -> 503 with Retry-After           kUnimplemented -> 501
//   kDeadlineExceeded -> 503 without Retry-After (the request's own timeout passed; Triton answers
//   "unavailable" too) kCancelled -> 499    a full disk (MarkDiskFull) -> 507    kPermissionDenied -> 403
//   everything else -> 500
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "base/units.hpp"
#include "gateway/http_message.hpp"

namespace troupe::gateway {

[[nodiscard]] int HttpCode(const absl::Status& status);
// "Not Found".
[[nodiscard]] std::string_view HttpReason(int code);

// {"error": message}.
[[nodiscard]] HttpResponse ErrorResponse(int code, std::string_view message);
// `retry_after` zero: one second. The header is in whole seconds, rounded up.
[[nodiscard]] HttpResponse ErrorResponse(const absl::Status& status, Duration retry_after = Duration::zero());

}  // namespace troupe::gateway
