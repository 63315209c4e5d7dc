// PROFILE PANELS: a profile by batch, as a table or a picture shows it. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "proto/function_profile.pb.h"

namespace troupe::shell {

// What is known for one batch: shares and quotas ascending, and the rows by both. It refers to the profile.
struct ProfilePanel {
  std::uint32_t batch = 0;
  std::vector<std::uint32_t> shares{};
  std::vector<std::uint32_t> quotas{};
  std::map<std::pair<std::uint32_t, std::uint32_t>, const proto::ProfileRow*> rows{};  // share, quota

  // Null: nothing is known there.
  [[nodiscard]] const proto::ProfileRow* At(std::uint32_t share, std::uint32_t quota) const;
  // The smallest share that serves as many requests as the largest one, to 3 %, at the largest quota; 0: not known.
  [[nodiscard]] std::uint32_t Saturation() const;
};
[[nodiscard]] std::vector<ProfilePanel> PanelsOf(const proto::FunctionProfile& profile);

}  // namespace troupe::shell
