// CAT: texts put together. As absl::StrCat and StrAppend, for std::string_view too: Debian's abseil has a
// string_view of its own, which does not convert.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

#include "absl/strings/str_cat.h"

namespace troupe::shell {

[[nodiscard]] inline absl::string_view ForAbsl(std::string_view text) {
  return {text.data(), text.size()};
}
[[nodiscard]] inline std::string_view FromAbsl(absl::string_view text) {
  return {text.data(), text.size()};
}

template <class T>
[[nodiscard]] decltype(auto) CatArgument(const T& value) {
  if constexpr (std::is_same_v<T, std::string_view>) {
    return ForAbsl(value);
  } else {
    return (value);
  }
}

template <class... T>
[[nodiscard]] std::string Cat(const T&... parts) {
  return absl::StrCat(CatArgument(parts)...);
}
template <class... T>
void Append(std::string* out, const T&... parts) {
  absl::StrAppend(out, CatArgument(parts)...);
}

}  // namespace troupe::shell
