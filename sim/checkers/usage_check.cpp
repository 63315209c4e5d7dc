#include "sim/checkers/usage_check.hpp"

#include "absl/strings/str_cat.h"
#include "proto/usage_key.hpp"

namespace troupe::sim {

namespace {

struct Quantity {
  const char* name;
  std::uint64_t UsageSum::*field;
};
constexpr Quantity kQuantities[] = {{"ns of GPU time", &UsageSum::gpu_ns},
                                    {"runs", &UsageSum::runs},
                                    {"bytes moved", &UsageSum::bytes_moved}};

}  // namespace

std::vector<std::string> CheckUsage(const std::map<std::string, ExpectedUsage>& expected,
                                    const std::vector<proto::UsageAmount>& stored) {
  std::map<std::string, UsageSum> sums;
  for (const auto& amount : stored) {
    auto& sum = sums[proto::UsageKey(amount.tenant(), amount.function())];
    sum.gpu_ns += amount.gpu_ns();
    sum.runs += amount.runs();
    sum.bytes_moved += amount.bytes_moved();
  }
  auto wanted = expected;
  for (const auto& [key, sum] : sums) wanted.try_emplace(key);  // what no worker counted must be zero
  std::vector<std::string> broken;
  for (const auto& [key, want] : wanted) {
    for (const auto& quantity : kQuantities) {
      const auto most = want.counted.*quantity.field - want.lost.*quantity.field;
      const auto least = most - want.unsure.*quantity.field;
      const auto found = sums[key].*quantity.field;
      if (found >= least && found <= most) continue;
      broken.push_back(absl::StrCat("the manager has ", found, " ", quantity.name, " of '", key,
                                    "', and its workers counted ",
                                    least == most ? absl::StrCat(most) : absl::StrCat(least, " to ", most)));
    }
  }
  return broken;
}

}  // namespace troupe::sim
