// Assertions that stay on in release. An expected failure is an absl::Status; a broken invariant is a
// TROUPE_CHECK.
#pragma once

namespace troupe {
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition, const char* why);
}  // namespace troupe

#define TROUPE_CHECK(condition, why) \
  ((condition) ? static_cast<void>(0) : ::troupe::CheckFailed(__FILE__, __LINE__, #condition, (why)))
