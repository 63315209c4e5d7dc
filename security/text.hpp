// Texts put together of pieces. Debian's absl has a string_view of its own, which does not take a
// std::string_view.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

namespace troupe::security {

inline void AppendPiece(std::string* out, std::string_view text) {
  out->append(text);
}
template <class T>
requires(std::is_integral_v<T> && !std::is_same_v<T, char>) void AppendPiece(std::string* out, T number) {
  out->append(std::to_string(number));
}
// absl's own view, as Status::message() gives it.
template <class View>
requires(!std::is_convertible_v<const View&, std::string_view> &&
         !std::is_integral_v<View>) void AppendPiece(std::string* out, const View& view) {
  out->append(view.data(), view.size());
}

template <class... Parts>
void Append(std::string* out, const Parts&... parts) {
  (AppendPiece(out, parts), ...);
}
template <class... Parts>
[[nodiscard]] std::string Cat(const Parts&... parts) {
  std::string out;
  Append(&out, parts...);
  return out;
}

}  // namespace troupe::security
