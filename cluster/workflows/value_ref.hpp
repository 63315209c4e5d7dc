// What a value in a workflow file refers to.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"

namespace troupe::cluster {

// "step.output" in its two parts; a workflow input has no step. An input whose name has a dot is written with one before it:
// ".images.1".
struct ValueRef {
  std::string step{};  // "": a workflow input
  std::string name{};
};
[[nodiscard]] inline ValueRef ParseValue(const std::string& value) {
  const std::size_t dot = value.find('.');
  if (dot == std::string::npos) return {.step = {}, .name = value};
  return {.step = value.substr(0, dot), .name = value.substr(dot + 1)};
}
// As it is written; `step`: "" for a workflow input.
[[nodiscard]] inline std::string ValueOf(const std::string& step, const std::string& name) {
  const bool plain = step.empty() && name.find('.') == std::string::npos;
  return absl::StrCat(step, plain ? "" : ".", name);
}

}  // namespace troupe::cluster
