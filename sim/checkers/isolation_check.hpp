// ISOLATION CHECK: what each runtime was given, compared with the function that it serves alone.
#pragma once

#include <string>
#include <vector>

namespace troupe::sim {

// A runtime prepared, got or ran this model when it served `runtime` ("function/NAME").
struct RuntimeModel {
  std::string where{};
  std::string runtime{};
  std::string model{};
};
struct ModelUser {
  std::string model{};
  std::string function{};
};

// A line for each model that a runtime had, and that the function does not use which it served.
[[nodiscard]] std::vector<std::string> CheckIsolation(const std::vector<RuntimeModel>& given,
                                                      const std::vector<ModelUser>& users);

}  // namespace troupe::sim
