#include "cluster/workflows/inner_run.hpp"

#include "absl/strings/str_cat.h"
#include "base/digest.hpp"

namespace troupe::cluster {

std::string InnerRunKey(const std::string& run, const std::string& step, std::uint64_t call,
                        std::uint32_t recomputed) {
  // No name of a run or a step has a slash.
  const auto digest = Sha256Hex(absl::StrCat(run, "/", step, "/", call, "/", recomputed));
  return absl::StrCat(".inner-", digest.substr(0, 32));
}

}  // namespace troupe::cluster
