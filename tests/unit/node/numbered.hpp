// Numbers for tests, which know models and functions by their texts.
#pragma once

#include <ostream>
#include <string_view>

#include "node/names.hpp"

namespace troupe::node {

// Of all tests that have no table of their own.
inline Names& TestNames() {
  static Names names;
  return names;
}
inline ModelNumber ModelNamed(std::string_view copy) {
  return TestNames().Model(copy);
}
inline FunctionNumber FunctionNamed(std::string_view name) {
  return TestNames().Function(name);
}

inline StateNumber StateNamed(std::string_view key) {
  return TestNames().State(key);
}

template <class Named>
bool operator==(const Number<Named>& number, std::string_view text) {
  return number.text() == text;
}
template <class Named>
void PrintTo(const Number<Named>& number, std::ostream* out) {
  *out << '\'' << number.text() << '\'';
}

}  // namespace troupe::node
