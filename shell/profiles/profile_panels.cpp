#include "shell/profiles/profile_panels.hpp"

#include <set>

namespace troupe::shell {

namespace {

constexpr double kAsMany = 0.97;

}  // namespace

const proto::ProfileRow* ProfilePanel::At(std::uint32_t share, std::uint32_t quota) const {
  const auto it = rows.find({share, quota});
  return it == rows.end() ? nullptr : it->second;
}

std::uint32_t ProfilePanel::Saturation() const {
  if (shares.empty() || quotas.empty()) return 0;
  const auto* whole = At(shares.back(), quotas.back());
  if (whole == nullptr || whole->throughput() <= 0) return 0;
  for (const auto share : shares) {
    const auto* row = At(share, quotas.back());
    if (row != nullptr && row->throughput() >= kAsMany * whole->throughput()) return share;
  }
  return 0;
}

std::vector<ProfilePanel> PanelsOf(const proto::FunctionProfile& profile) {
  std::map<std::uint32_t, ProfilePanel> panels;
  std::map<std::uint32_t, std::pair<std::set<std::uint32_t>, std::set<std::uint32_t>>> axes;
  for (const auto& row : profile.rows()) {
    panels[row.batch()].rows[{row.sm_partition(), row.quota_limit()}] = &row;
    axes[row.batch()].first.insert(row.sm_partition());
    axes[row.batch()].second.insert(row.quota_limit());
  }
  std::vector<ProfilePanel> out;
  for (auto& [batch, panel] : panels) {
    panel.batch = batch;
    panel.shares = {axes[batch].first.begin(), axes[batch].first.end()};
    panel.quotas = {axes[batch].second.begin(), axes[batch].second.end()};
    out.push_back(std::move(panel));
  }
  return out;
}

}  // namespace troupe::shell
