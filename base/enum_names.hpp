// NAMES OF VALUES: the values of an enum by the names that people write in options, files and command lines. An enum
// has one table of names, beside its declaration, and all code that reads or writes such a name uses this table.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

template <class Value>
using EnumName = std::pair<std::string_view, Value>;

// Nothing when no value has this name.
template <class Value, std::size_t N>
[[nodiscard]] constexpr std::optional<Value> FindNamed(const std::array<EnumName<Value>, N>& table,
                                                       std::string_view name) {
  for (const auto& [known, value] : table)
    if (known == name) return value;
  return std::nullopt;
}

// Empty when the table does not have the value: it may come from a newer version of the program.
template <class Value, std::size_t N>
[[nodiscard]] constexpr std::string_view NameIn(const std::array<EnumName<Value>, N>& table, Value value) {
  for (const auto& [name, known] : table)
    if (known == value) return name;
  return {};
}

template <class Value, std::size_t N>
[[nodiscard]] std::vector<std::string> NameList(const std::array<EnumName<Value>, N>& table) {
  std::vector<std::string> names;
  for (const auto& [name, value] : table) names.emplace_back(name);
  return names;
}

// "shared, tenant", for errors that say what may be written.
template <class Value, std::size_t N>
[[nodiscard]] std::string NamesIn(const std::array<EnumName<Value>, N>& table) {
  std::string names;
  for (const auto& [name, value] : table) names.append(names.empty() ? "" : ", ").append(name);
  return names;
}

}  // namespace troupe
