#include "security/certificate_authority.hpp"

#include <arpa/inet.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"

#include "absl/strings/str_split.h"
#include "base/status.hpp"
#include "security/pem_files.hpp"
#include "security/text.hpp"

namespace troupe::security {

namespace {

using BigPtr = std::unique_ptr<BIGNUM, Freed<BN_free>>;

constexpr std::size_t kSerialBytes = 16;
constexpr std::size_t kMostHosts = 32;

bool IsAddress(const std::string& host) {
  unsigned char address[sizeof(in6_addr)];
  return ::inet_pton(AF_INET, host.c_str(), address) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), address) == 1;
}

absl::Status Failed(std::string_view what) {
  return absl::InternalError(Cat("cannot ", what, ": ", TakeOpenSslErrors()));
}

bool SetTime(ASN1_TIME* field, absl::Time time) {
  return ASN1_TIME_set(field, absl::ToTimeT(time)) != nullptr;
}

bool Add(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const std::unique_ptr<X509_EXTENSION, Freed<X509_EXTENSION_free>> extension(
      X509V3_EXT_nconf_nid(nullptr, &context, kind, value.c_str()));
  return extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1;
}

bool SetSerial(X509* certificate) {
  unsigned char bytes[kSerialBytes];
  if (RAND_bytes(bytes, sizeof(bytes)) != 1) return false;
  bytes[0] = static_cast<unsigned char>((bytes[0] & 0x7f) | 0x40);  // positive, and always of the same length
  const BigPtr number(BN_bin2bn(bytes, sizeof(bytes), nullptr));
  return number != nullptr && BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) != nullptr;
}

bool SetName(X509* certificate, const char* field, std::string_view value) {
  return X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), field, MBSTRING_UTF8,
                                    reinterpret_cast<const unsigned char*>(value.data()),
                                    static_cast<int>(value.size()), -1, 0) == 1;
}

// Everything but the issuer, the extensions and the signature.
X509Ptr Blank(std::string_view name, EVP_PKEY* key, absl::Time not_before, absl::Time not_after) {
  X509Ptr made(X509_new());
  const bool good =
      made != nullptr && X509_set_version(made.get(), X509_VERSION_3) == 1 && SetSerial(made.get()) &&
      SetName(made.get(), "CN", name) && SetTime(X509_getm_notBefore(made.get()), not_before) &&
      SetTime(X509_getm_notAfter(made.get()), not_after) && X509_set_pubkey(made.get(), key) == 1;
  return good ? std::move(made) : nullptr;
}

std::string PemOf(X509* certificate) {
  const BioPtr out(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(out.get(), certificate);
  return BioText(out.get());
}

std::string PemOf(EVP_PKEY* key) {
  const BioPtr out(BIO_new(BIO_s_mem()));
  PEM_write_bio_PKCS8PrivateKey(out.get(), key, nullptr, nullptr, 0, nullptr, nullptr);
  return BioText(out.get());
}

absl::Status Check(const CertificateRequest& request, absl::Time authority_ends) {
  TROUPE_RETURN_IF_ERROR(CheckName(request.name));
  if (request.roles.empty())
    return absl::InvalidArgumentError(Cat("the certificate of '", request.name, "' needs at least one role"));
  if (request.hosts.size() > kMostHosts)
    return absl::InvalidArgumentError(Cat("a certificate names at most ", kMostHosts, " hosts"));
  for (const auto& host : request.hosts) TROUPE_RETURN_IF_ERROR(CheckHost(host));
  if (request.not_after <= request.not_before)
    return absl::InvalidArgumentError("the certificate would end before it begins");
  if (request.not_after > authority_ends)
    return absl::InvalidArgumentError(Cat("the certificate would end ", TimeText(request.not_after),
                                          ", after its authority, which ends ", TimeText(authority_ends),
                                          "; ask for fewer days"));
  return absl::OkStatus();
}

std::string AlternativeNames(const CertificateRequest& request) {
  std::string names;
  for (const Role role : kAllRoles)
    if (request.roles.Has(role))
      Append(&names, names.empty() ? "" : ",", "URI:", FormatIdentityUri(role, request.name));
  for (const auto& host : request.hosts) Append(&names, ",", IsAddress(host) ? "IP:" : "DNS:", host);
  return names;
}

bool AddRevoked(X509_CRL* list, const Revocation& one) {
  std::unique_ptr<X509_REVOKED, Freed<X509_REVOKED_free>> entry(X509_REVOKED_new());
  const std::string bytes = absl::HexStringToBytes(one.serial);
  const BigPtr number(BN_bin2bn(reinterpret_cast<const unsigned char*>(bytes.data()),
                                static_cast<int>(bytes.size()), nullptr));
  const std::unique_ptr<ASN1_INTEGER, Freed<ASN1_INTEGER_free>> serial(
      BN_to_ASN1_INTEGER(number.get(), nullptr));
  const std::unique_ptr<ASN1_TIME, Freed<ASN1_TIME_free>> at(ASN1_TIME_set(nullptr, absl::ToTimeT(one.at)));
  if (serial == nullptr || at == nullptr || X509_REVOKED_set_serialNumber(entry.get(), serial.get()) != 1 ||
      X509_REVOKED_set_revocationDate(entry.get(), at.get()) != 1 ||
      X509_CRL_add0_revoked(list, entry.get()) != 1)
    return false;
  (void)entry.release();
  return true;
}

}  // namespace

absl::Status CheckHost(const std::string& host) {
  if (IsAddress(host)) return absl::OkStatus();
  bool good = !host.empty() && host.size() <= 253;
  for (const std::string& label : std::vector<std::string>(absl::StrSplit(host, '.'))) {
    good = good && !label.empty() && label.size() <= 63 && label.front() != '-' && label.back() != '-';
    for (const char one : label)
      good = good && (absl::ascii_isalnum(static_cast<unsigned char>(one)) || one == '-');
  }
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(
      Cat("'", absl::CHexEscape(host.substr(0, 80)), "' is not a host name or an IP address"));
}

absl::StatusOr<CertificateAuthority> CertificateAuthority::Make(std::string_view name, absl::Time not_before,
                                                                absl::Time not_after) {
  TROUPE_RETURN_IF_ERROR(CheckName(name));
  ERR_clear_error();
  KeyPtr key(EVP_EC_gen("P-256"));
  if (key == nullptr) return Failed("make a key");
  X509Ptr made = Blank(name, key.get(), not_before, not_after);
  // A member may have the authority's name, so the authority's subject has an organisation as well: else the
  // member's certificate, whose issuer and subject would agree, would pass for a self-signed one.
  if (made == nullptr || !SetName(made.get(), "O", "Troupe certificate authority") ||
      X509_set_issuer_name(made.get(), X509_get_subject_name(made.get())) != 1 ||
      !Add(made.get(), made.get(), NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
      !Add(made.get(), made.get(), NID_key_usage, "critical,keyCertSign,cRLSign") ||
      !Add(made.get(), made.get(), NID_subject_key_identifier, "hash") ||
      X509_sign(made.get(), key.get(), EVP_sha256()) == 0)
    return Failed("make the authority's certificate");
  return CertificateAuthority(std::move(made), std::move(key));
}

absl::StatusOr<CertificateAuthority> CertificateAuthority::FromPem(std::string_view certificate_pem,
                                                                   std::string_view key_pem) {
  TROUPE_ASSIGN_OR_RETURN(auto certificates,
                          ParseCertificates(certificate_pem, "the authority's certificate"));
  TROUPE_ASSIGN_OR_RETURN(auto key, ParseKey(key_pem, "the authority's key"));
  X509Ptr certificate = std::move(certificates.front());
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    ERR_clear_error();
    return absl::InvalidArgumentError("the authority's key does not belong to its certificate");
  }
  if (X509_check_ca(certificate.get()) == 0)
    return absl::InvalidArgumentError("the certificate is not one of an authority: it may not sign others");
  return CertificateAuthority(std::move(certificate), std::move(key));
}

std::string CertificateAuthority::CertificatePem() const {
  return PemOf(certificate_.get());
}
std::string CertificateAuthority::KeyPem() const {
  return PemOf(key_.get());
}

absl::StatusOr<IssuedCertificate> CertificateAuthority::Issue(const CertificateRequest& request) const {
  TROUPE_RETURN_IF_ERROR(Check(request, NotAfter(certificate_.get())));
  ERR_clear_error();
  const KeyPtr key(EVP_EC_gen("P-256"));
  if (key == nullptr) return Failed("make a key");
  const bool daemon = request.roles.HasAny({Role::kManager, Role::kGateway, Role::kNode});
  const X509Ptr made = Blank(request.name, key.get(), request.not_before, request.not_after);
  X509* issuer = certificate_.get();
  if (made == nullptr || X509_set_issuer_name(made.get(), X509_get_subject_name(issuer)) != 1 ||
      !Add(made.get(), issuer, NID_basic_constraints, "critical,CA:FALSE") ||
      !Add(made.get(), issuer, NID_key_usage, "critical,digitalSignature") ||
      !Add(made.get(), issuer, NID_ext_key_usage, daemon ? "serverAuth,clientAuth" : "clientAuth") ||
      !Add(made.get(), issuer, NID_authority_key_identifier, "keyid:always") ||
      !Add(made.get(), issuer, NID_subject_alt_name, AlternativeNames(request)) ||
      X509_sign(made.get(), key_.get(), EVP_sha256()) == 0)
    return Failed("make a certificate");
  return IssuedCertificate{PemOf(made.get()), PemOf(key.get()), SerialOf(made.get())};
}

absl::StatusOr<std::string> CertificateAuthority::RevocationList(std::span<const Revocation> revoked,
                                                                 absl::Time at) const {
  ERR_clear_error();
  const CrlPtr list(X509_CRL_new());
  const std::unique_ptr<ASN1_TIME, Freed<ASN1_TIME_free>> from(ASN1_TIME_set(nullptr, absl::ToTimeT(at)));
  if (list == nullptr || from == nullptr || X509_CRL_set_version(list.get(), X509_CRL_VERSION_2) != 1 ||
      X509_CRL_set_issuer_name(list.get(), X509_get_subject_name(certificate_.get())) != 1 ||
      X509_CRL_set1_lastUpdate(list.get(), from.get()) != 1 ||
      X509_CRL_set1_nextUpdate(list.get(), X509_get0_notAfter(certificate_.get())) != 1)
    return Failed("make a revocation list");
  for (const auto& one : revoked)
    if (!AddRevoked(list.get(), one)) return Failed(Cat("revoke the serial ", one.serial));
  X509_CRL_sort(list.get());
  if (X509_CRL_sign(list.get(), key_.get(), EVP_sha256()) == 0) return Failed("sign a revocation list");
  const BioPtr out(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509_CRL(out.get(), list.get());
  return BioText(out.get());
}

absl::StatusOr<std::vector<Revocation>> CertificateAuthority::ReadRevocationList(std::string_view pem) const {
  TROUPE_ASSIGN_OR_RETURN(const auto lists, ParseRevocations(pem, "the revocation list"));
  X509_CRL* list = lists.front().get();
  if (X509_CRL_verify(list, key_.get()) != 1) {
    ERR_clear_error();
    return absl::InvalidArgumentError("the revocation list is not signed by this authority");
  }
  std::vector<Revocation> found;
  const STACK_OF(X509_REVOKED)* entries = X509_CRL_get_REVOKED(list);
  for (int at = 0; entries != nullptr && at < sk_X509_REVOKED_num(entries); ++at) {
    const X509_REVOKED* one = sk_X509_REVOKED_value(entries, at);
    tm parts{};
    ASN1_TIME_to_tm(X509_REVOKED_get0_revocationDate(one), &parts);
    found.push_back(
        {SerialText(X509_REVOKED_get0_serialNumber(one)), absl::FromTM(parts, absl::UTCTimeZone())});
  }
  return found;
}

}  // namespace troupe::security
