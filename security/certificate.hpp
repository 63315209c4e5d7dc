// CERTIFICATE: what stands in one X.509 certificate, for verification, errors and lists.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "security/identity.hpp"
#include "security/openssl_pointers.hpp"

namespace troupe::security {

// Lower-case hexadecimal digits.
[[nodiscard]] std::string SerialOf(const X509* certificate);
[[nodiscard]] std::string SerialText(const ASN1_INTEGER* serial);
// The identity in its URIs. A certificate without one (of an HTTPS server, of a certificate authority) is an
// error.
[[nodiscard]] absl::StatusOr<Identity> IdentityOf(const X509* certificate);
// DNS names and IP addresses that it is good for.
[[nodiscard]] std::vector<std::string> HostsOf(const X509* certificate);
[[nodiscard]] absl::Time NotBefore(const X509* certificate);
[[nodiscard]] absl::Time NotAfter(const X509* certificate);
// "2026-11-24 10:00:00 UTC".
[[nodiscard]] std::string TimeText(absl::Time time);
// For errors: the identity where there is one, else the subject, with the serial.
[[nodiscard]] std::string Describe(const X509* certificate);
// What the verification error `code` (X509_V_ERR_...) of `certificate` means, and what to do; `host` is the
// host that was dialled, when one was.
[[nodiscard]] std::string ExplainVerification(int code, const X509* certificate, std::string_view host);

}  // namespace troupe::security
