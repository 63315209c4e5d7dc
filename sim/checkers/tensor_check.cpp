#include "sim/checkers/tensor_check.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace troupe::sim {

bool OnlyKept(const proto::CommitStep& step) {
  return std::ranges::any_of(step.outputs(), [](const auto& output) { return output.has_kept(); });
}

std::vector<std::string> CheckTensors(const std::vector<KeptThere>& kept) {
  std::vector<std::string> broken;
  for (const auto& there : kept) {
    if (there.tensors > 0)
      broken.push_back(
          absl::StrCat(there.where, " keeps ", there.tensors, " tensors, and every run has ended"));
    if (there.bytes > 0)
      broken.push_back(
          absl::StrCat(there.where, " has ", there.bytes, " bytes in its arena, and no reader is left"));
  }
  return broken;
}

}  // namespace troupe::sim
