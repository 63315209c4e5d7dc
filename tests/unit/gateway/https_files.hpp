// Certificates for tests of HTTPS: an authority, a server's files, and a client that trusts the authority.
#pragma once

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "security/certificate_authority.hpp"
#include "security/server_certificate.hpp"
#include "tests/temporary_directory.hpp"

namespace troupe::gateway {

class HttpsFiles {
 public:
  HttpsFiles();
  // One set for the whole process, since keys take time to make.
  static HttpsFiles& Shared();

  [[nodiscard]] std::shared_ptr<security::ServerCertificate> Load() const;
  // Replaces the files by another certificate for localhost, which ends at `not_after`.
  void Renew(absl::Time not_after = absl::InfiniteFuture());
  // A client that trusts the authority and wants a server of the name localhost.
  [[nodiscard]] SSL_CTX* client() const { return client_.get(); }
  [[nodiscard]] security::ServerCertificateFiles files() const {
    return {directory_ / "certificate.pem", directory_ / "key.pem"};
  }
  [[nodiscard]] const std::string& serial() const {
    return serial_;
  }  // the serial number of the newest certificate

 private:
  test::TemporaryDirectory directory_;
  std::unique_ptr<security::CertificateAuthority> authority_;
  security::ContextPtr client_;
  std::string serial_;
};

}  // namespace troupe::gateway
