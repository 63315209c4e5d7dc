#include "gateway/http_error.hpp"

#include <algorithm>

#include "base/status.hpp"
#include "gateway/json_text.hpp"
#include "gateway/text.hpp"

namespace troupe::gateway {

int HttpCode(const absl::Status& status) {
  if (IsDiskFull(status)) return 507;
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAlreadyExists:
      return 400;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kCancelled:
      return 499;
    case absl::StatusCode::kUnimplemented:
      return 501;
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kDeadlineExceeded:
      return 503;
    default:
      return 500;
  }
}

std::string_view HttpReason(int code) {
  switch (code) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 422:
      return "Unprocessable Content";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 499:
      return "Client Closed Request";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 507:
      return "Insufficient Storage";
    default:
      return code < 500 ? "Bad Request" : "Internal Server Error";
  }
}

HttpResponse ErrorResponse(int code, std::string_view message) {
  HttpResponse response;
  response.code = code;
  response.body = "{\"error\":";
  AppendJsonText(response.body, message);
  response.body += "}";
  return response;
}

HttpResponse ErrorResponse(const absl::Status& status, Duration retry_after) {
  const int code = HttpCode(status);
  HttpResponse response = ErrorResponse(code, Message(status));
  if (code == 503 && status.code() != absl::StatusCode::kDeadlineExceeded) {
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(retry_after).count();
    Append(response.headers, "Retry-After: ", std::max<std::int64_t>(1, seconds), "\r\n");
  }
  return response;
}

}  // namespace troupe::gateway
