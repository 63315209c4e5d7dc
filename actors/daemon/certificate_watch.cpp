#include "actors/daemon/certificate_watch.hpp"

#include <spdlog/spdlog.h>

#include <string>

namespace troupe::actors {

void CertificateWatch::Look(bool forced, absl::Time now) {
  const auto changed = credentials_.Reload(forced);
  if (!changed.ok()) {
    spdlog::error("{}", std::string(changed.status().message()));
  } else if (*changed) {
    const auto current = credentials_.Current();
    spdlog::info("uses the certificate {}, good until {}", current->identity().ToString(),
                 security::TimeText(current->not_after()));
    warned_ = absl::InfinitePast();
    directory_.CloseRefused();
  }
  WarnOfEnd(now);
}

void CertificateWatch::WarnOfEnd(absl::Time now) {
  if (Left(now) > kWarnBefore || now - warned_ < kBetweenWarnings) return;
  warned_ = now;
  const auto current = credentials_.Current();
  spdlog::warn(
      "the certificate {} ends {}: new connections fail from then on; issue a new one with 'troupe ca issue' "
      "into its directory, and it is used without a restart",
      current->identity().ToString(), security::TimeText(current->not_after()));
}

}  // namespace troupe::actors
