// The names of images, as files and messages have them: cluster::StateKey of a function, or cluster::SequenceKey of a sequence.
#pragma once

#include <string>
#include <utility>

#include "base/units.hpp"

namespace troupe::node {

// Of the file of an image beyond the bytes of its tensors: digest, names, shapes.
inline constexpr Bytes kAroundTensors = KiB(64);

// The key of the function whose state, or whose sequence's state, this is; the sequence's id, which is empty of the function's own.
[[nodiscard]] inline std::pair<std::string, std::string> SplitImage(const std::string& image) {
  const auto at = image.find('#');
  if (at == std::string::npos) return {image, std::string()};
  return {image.substr(0, at), image.substr(at + 1)};
}

}  // namespace troupe::node
