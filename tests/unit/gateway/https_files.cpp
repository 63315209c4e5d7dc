#include "tests/unit/gateway/https_files.hpp"

#include <gtest/gtest.h>
#include <openssl/x509v3.h>

#include "absl/time/clock.h"
#include "security/pem_files.hpp"

namespace troupe::gateway {

HttpsFiles::HttpsFiles() {
  const auto now = absl::Now();
  auto authority =
      security::CertificateAuthority::Make("tests", now - absl::Hours(48), now + absl::Hours(24 * 365));
  if (!authority.ok()) throw std::runtime_error(std::string(authority.status().message()));
  authority_ = std::make_unique<security::CertificateAuthority>(*std::move(authority));
  client_.reset(SSL_CTX_new(TLS_client_method()));
  const auto trusted = security::ParseCertificates(authority_->CertificatePem(), "the authority");
  X509_STORE_add_cert(SSL_CTX_get_cert_store(client_.get()), trusted->front().get());
  SSL_CTX_set_verify(client_.get(), SSL_VERIFY_PEER, nullptr);
  X509_VERIFY_PARAM_set1_host(SSL_CTX_get0_param(client_.get()), "localhost", 0);
  Renew();
}

HttpsFiles& HttpsFiles::Shared() {
  static HttpsFiles files;
  return files;
}

std::shared_ptr<security::ServerCertificate> HttpsFiles::Load() const {
  auto loaded = security::ServerCertificate::Load(files());
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return loaded.ok() ? *std::move(loaded) : nullptr;
}

void HttpsFiles::Renew(absl::Time not_after) {
  security::CertificateRequest request;
  request.roles = {security::Role::kGateway};
  request.name = "front";
  request.hosts = {"localhost"};
  request.not_before = absl::Now() - absl::Hours(24);
  request.not_after = std::min(not_after, absl::Now() + absl::Hours(24 * 300));
  const auto issued = authority_->Issue(request);
  ASSERT_TRUE(issued.ok()) << issued.status();
  serial_ = issued->serial;
  // The key is written first: a reader that comes between the two finds a pair that does not fit, and keeps
  // what it has.
  ASSERT_TRUE(security::ReplaceFile(files().key, issued->key_pem, 0600).ok());
  ASSERT_TRUE(security::ReplaceFile(files().certificate, issued->certificate_pem, 0644).ok());
}

}  // namespace troupe::gateway
