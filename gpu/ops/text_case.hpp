// Upper and lower case of texts, as StringNormalizer changes it.
#pragma once

#include <string>
#include <string_view>

namespace troupe::gpu {

enum class CaseChange { kNone, kLower, kUpper };

// The most that a text grows by a change of case: a letter of 2 bytes may become one of 3.
inline constexpr std::size_t kMostCaseGrowth = 2;

// Character by character, by the C library's tables for C.UTF-8, which hold the letters of all languages; a letter that
// becomes several (the German sharp s) stays. Bytes that are not UTF-8 stay as they are. Writes over `to`.
void ChangeCase(CaseChange change, std::string_view text, std::string& to);

}  // namespace troupe::gpu
