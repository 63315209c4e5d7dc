// SANITIZER: whether this build has AddressSanitizer or ThreadSanitizer, with which programs map most of the address space and
// take ten to twenty times as long.
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TROUPE_SANITIZED 1
#elif defined(__has_feature)  // clang's way to say it
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TROUPE_SANITIZED 1
#endif
#endif
#ifndef TROUPE_SANITIZED
#define TROUPE_SANITIZED 0
#endif

namespace troupe {

inline constexpr bool kSanitized = TROUPE_SANITIZED != 0;

}  // namespace troupe
