// JSON text and UTF-8: what the infer path reads and writes without building a tree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::gateway {

void AppendUtf8(std::string& out, std::uint32_t code);
// Length of the well-formed UTF-8 sequence at the start of `text`; 0 when there is none.
[[nodiscard]] std::size_t Utf8Length(std::string_view text);

// Appends `text` with quotes and escapes. False, with nothing appended, when it is not UTF-8.
[[nodiscard]] bool AppendJsonString(std::string& out, std::string_view text);
// The same, for text that may hold anything (messages): bytes that are no UTF-8 become '?'.
void AppendJsonText(std::string& out, std::string_view text);

}  // namespace troupe::gateway
