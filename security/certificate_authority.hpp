// CERTIFICATE AUTHORITY: makes the certificates of a cluster. ECDSA over P-256 with SHA-256, because every
// TLS library takes it (Ed25519 is refused by some HTTP clients). It works in memory only; where the key is
// kept is the caller's decision.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "security/certificate.hpp"
#include "security/identity.hpp"

namespace troupe::security {

struct CertificateRequest {
  Roles roles;
  std::string name;
  std::vector<std::string> hosts;  // DNS names and IP addresses under which the holder is dialled
  absl::Time not_before, not_after;
};
struct IssuedCertificate {
  std::string certificate_pem;
  std::string key_pem;
  std::string serial;
};
struct Revocation {
  std::string serial;
  absl::Time at;
  friend bool operator==(const Revocation&, const Revocation&) = default;
};

// OK for a DNS name or an IP address that may stand in a certificate.
[[nodiscard]] absl::Status CheckHost(const std::string& host);

class CertificateAuthority {
 public:
  // A new authority with a key of its own. `name` is shown as the issuer of what it signs.
  static absl::StatusOr<CertificateAuthority> Make(std::string_view name, absl::Time not_before,
                                                   absl::Time not_after);
  static absl::StatusOr<CertificateAuthority> FromPem(std::string_view certificate_pem,
                                                      std::string_view key_pem);

  [[nodiscard]] std::string CertificatePem() const;
  [[nodiscard]] std::string KeyPem() const;
  // With a fresh key and a fresh serial. Daemons' certificates (manager, gateway, node) are good for both
  // sides of a connection, those of admins and readers for dialling only.
  [[nodiscard]] absl::StatusOr<IssuedCertificate> Issue(const CertificateRequest& request) const;
  // A signed list of all certificates that are not to be trusted any more. It is valid as long as the
  // authority, so that a cluster does not stop because an unchanged list was not signed again.
  [[nodiscard]] absl::StatusOr<std::string> RevocationList(std::span<const Revocation> revoked,
                                                           absl::Time at) const;
  // What a list says, after its signature was checked.
  [[nodiscard]] absl::StatusOr<std::vector<Revocation>> ReadRevocationList(std::string_view pem) const;

 private:
  CertificateAuthority(X509Ptr certificate, KeyPtr key)
      : certificate_(std::move(certificate)), key_(std::move(key)) {}

  X509Ptr certificate_;
  KeyPtr key_;
};

}  // namespace troupe::security
