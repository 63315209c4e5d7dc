#include "gpu/device/compute_profile.hpp"

#include <fstream>
#include <sstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace troupe::gpu {
namespace {

bool ParseSaturation(std::string_view word, double& saturation) {
  int percent = 0;
  if (!word.ends_with('%') || !absl::SimpleAtoi(std::string(word.substr(0, word.size() - 1)), &percent))
    return false;
  saturation = percent / 100.0;
  return percent >= 1 && percent <= 100;
}

}  // namespace

absl::StatusOr<ComputeProfile> ComputeProfile::Parse(std::string_view text) {
  ComputeProfile profile;
  int number = 0;
  for (std::string line : std::vector<std::string>(absl::StrSplit(std::string(text), '\n'))) {
    ++number;
    line = line.substr(0, line.find('#'));
    const std::vector<std::string> words = absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty()) continue;
    RunCost cost;
    if (words.size() < 2 || words.size() > 3 || !ParseDuration(words[1], cost.time) ||
        cost.time < Duration(0) || cost.time > kLongest ||
        (words.size() == 3 && !ParseSaturation(words[2], cost.saturation))) {
      return absl::InvalidArgumentError(absl::StrCat(
          "line ", number,
          " of the compute profile: expected `<digest or default> <time> [<saturation>]` with a time of at "
          "most ",
          FormatDuration(kLongest),
          " and a part of the SMs from 1% to 100%, such as `default 5ms 40%`; found `", line, "`"));
    }
    if (words[0] == "default") {
      profile.default_ = cost;
    } else {
      profile.by_digest_[words[0]] = cost;
    }
  }
  return profile;
}

absl::StatusOr<ComputeProfile> ComputeProfile::Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    return absl::NotFoundError(absl::StrCat("the compute profile ", path, " cannot be read or is empty"));
  }
  return Parse(text.str());
}

RunCost ComputeProfile::CostOf(std::string_view digest, std::string_view onnx_digest) const {
  for (const std::string_view key : {digest, onnx_digest}) {
    if (const auto found = by_digest_.find(key); found != by_digest_.end()) return found->second;
  }
  return default_;
}

}  // namespace troupe::gpu
