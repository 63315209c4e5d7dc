// What a value in a workflow file refers to.
#pragma once

#include <string>

namespace troupe::cluster {

// "step.output" in its two parts; a workflow input has no step.
struct ValueRef {
  std::string step{};  // "": a workflow input
  std::string name{};
};
[[nodiscard]] inline ValueRef ParseValue(const std::string& value) {
  const std::size_t dot = value.find('.');
  if (dot == std::string::npos) return {.step = {}, .name = value};
  return {.step = value.substr(0, dot), .name = value.substr(dot + 1)};
}

}  // namespace troupe::cluster
