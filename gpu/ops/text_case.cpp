#include "gpu/ops/text_case.hpp"

#include <locale.h>

#include <cwchar>
#include <cwctype>

namespace troupe::gpu {
namespace {

// Null on a machine without the locale, where only ASCII letters change.
locale_t Utf8Locale() {
  static const locale_t locale = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  return locale;
}

// The calling thread's locale, for as long as this lives.
class LocaleScope {
 public:
  explicit LocaleScope(locale_t locale) : before_(::uselocale(locale)) {}
  ~LocaleScope() { ::uselocale(before_); }
  LocaleScope(const LocaleScope&) = delete;
  LocaleScope& operator=(const LocaleScope&) = delete;

 private:
  locale_t before_;
};

// Appends the first character of `text` as it becomes; answers how many bytes it had.
std::size_t ChangeOne(CaseChange change, std::string_view text, std::string& to) {
  wchar_t code = 0;
  std::mbstate_t state{};
  const std::size_t length = std::mbrtowc(&code, text.data(), text.size(), &state);
  if (length == 0 || length > text.size()) {  // a zero byte, or no UTF-8
    to += text.front();
    return 1;
  }
  const auto letter = static_cast<std::wint_t>(code);
  char bytes[8];  // more than any character takes
  state = {};
  const std::size_t written = std::wcrtomb(
      bytes,
      static_cast<wchar_t>(change == CaseChange::kLower ? std::towlower(letter) : std::towupper(letter)),
      &state);
  if (written > sizeof(bytes)) {
    to += text.substr(0, length);
  } else {
    to.append(bytes, written);
  }
  return length;
}

}  // namespace

void ChangeCase(CaseChange change, std::string_view text, std::string& to) {
  to.clear();
  if (change == CaseChange::kNone) {
    to = text;
    return;
  }
  const LocaleScope scope(Utf8Locale());
  while (!text.empty()) text.remove_prefix(ChangeOne(change, text, to));
}

}  // namespace troupe::gpu
