#include "gpu/device/compute_profile.hpp"

#include <fstream>
#include <sstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace troupe::gpu {

absl::StatusOr<ComputeProfile> ComputeProfile::Parse(std::string_view text) {
  ComputeProfile profile;
  int number = 0;
  for (std::string line : std::vector<std::string>(absl::StrSplit(std::string(text), '\n'))) {
    ++number;
    line = line.substr(0, line.find('#'));
    const std::vector<std::string> words = absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty()) continue;
    Duration time{};
    if (words.size() != 2 || !ParseDuration(words[1], time) || time < Duration(0) || time > kLongest) {
      return absl::InvalidArgumentError(absl::StrCat(
          "line ", number,
          " of the compute profile: expected `<digest or default> <time>` with a time of at most ",
          FormatDuration(kLongest), ", such as `default 5ms`; found `", line, "`"));
    }
    if (words[0] == "default") {
      profile.default_ = time;
    } else {
      profile.by_digest_[words[0]] = time;
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

Duration ComputeProfile::RunTime(std::string_view digest, std::string_view onnx_digest) const {
  for (const std::string_view key : {digest, onnx_digest}) {
    if (const auto found = by_digest_.find(key); found != by_digest_.end()) return found->second;
  }
  return default_;
}

}  // namespace troupe::gpu
