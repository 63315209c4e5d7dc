// CERTIFICATE WATCH: sees to it that a daemon uses the certificates that lie in its directory now, without a
// restart: a renewed one of its own, and a new list of revoked ones. Says when its own one is about to end.
#pragma once

#include <memory>
#include <optional>

#include "absl/time/time.h"
#include "actors/peers/network_peer_directory.hpp"
#include "security/credentials.hpp"

namespace troupe::actors {

// On the main thread. Both outlive it.
class CertificateWatch {
 public:
  static constexpr absl::Duration kWarnBefore = absl::Hours(24 * 14);
  static constexpr absl::Duration kBetweenWarnings = absl::Hours(24);

  CertificateWatch(security::Credentials& credentials, NetworkPeerDirectory& directory)
      : credentials_(credentials), directory_(directory) {}

  // About once a second; `forced` (SIGHUP): whether the files show a change or not. Says what it found in the
  // log.
  void Look(bool forced, absl::Time now);
  // Negative when it has ended.
  [[nodiscard]] absl::Duration Left(absl::Time now) const {
    return credentials_.Current()->not_after() - now;
  }

 private:
  void WarnOfEnd(absl::Time now);

  security::Credentials& credentials_;
  NetworkPeerDirectory& directory_;
  absl::Time warned_ = absl::InfinitePast();
};

}  // namespace troupe::actors
