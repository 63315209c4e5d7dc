#include "sim/checkers/usage_check.hpp"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "proto/usage_amount.hpp"
#include "proto/usage_key.hpp"

namespace troupe::sim {

namespace {

struct Quantity {
  const char* name;
  std::uint64_t (proto::UsageAmount::*of)() const;
};
constexpr Quantity kQuantities[] = {{"ns of GPU time", &proto::UsageAmount::gpu_ns},
                                    {"runs", &proto::UsageAmount::runs},
                                    {"bytes moved", &proto::UsageAmount::bytes_moved}};

}  // namespace

std::vector<std::string> CheckUsage(const std::map<std::string, ExpectedUsage>& expected,
                                    const std::vector<proto::UsageAmount>& stored) {
  std::map<std::string, proto::UsageAmount> sums;
  for (const auto& amount : stored)
    proto::AddTo(sums[proto::UsageKey(amount.tenant(), amount.function())], amount);
  auto wanted = expected;
  for (const auto& [key, sum] : sums) wanted.try_emplace(key);  // what no worker counted must be zero
  std::vector<std::string> broken;
  for (const auto& [key, want] : wanted) {
    for (const auto& quantity : kQuantities) {
      const auto most = (want.counted.*quantity.of)() - (want.lost.*quantity.of)();
      const auto least = most - (want.unsure.*quantity.of)();
      const auto found = (sums[key].*quantity.of)();
      if (found >= least && found <= most) continue;
      broken.push_back(absl::StrCat("the manager has ", found, " ", quantity.name, " of '", key,
                                    "', and its workers counted ",
                                    least == most ? absl::StrCat(most) : absl::StrCat(least, " to ", most)));
    }
  }
  return broken;
}

}  // namespace troupe::sim
