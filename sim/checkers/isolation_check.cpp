#include "sim/checkers/isolation_check.hpp"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace troupe::sim {

std::vector<std::string> CheckIsolation(const std::vector<RuntimeModel>& given,
                                        const std::vector<ModelUser>& users) {
  std::set<std::pair<std::string, std::string>> allowed;
  for (const auto& user : users) allowed.emplace(absl::StrCat("function/", user.function), user.model);
  std::vector<std::string> broken;
  for (const auto& [where, runtime, model] : given)
    if (!allowed.contains({runtime, model}))
      broken.push_back(absl::StrCat(where, " served '", runtime, "' and had model ", model.substr(0, 12),
                                    ", which that function does not use"));
  return broken;
}

}  // namespace troupe::sim
