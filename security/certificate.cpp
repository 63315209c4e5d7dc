#include "security/certificate.hpp"

#include <arpa/inet.h>
#include <openssl/x509v3.h>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"

#include "absl/strings/str_join.h"
#include "base/status.hpp"
#include "security/text.hpp"

namespace troupe::security {

namespace {

using NamesPtr = std::unique_ptr<GENERAL_NAMES, Freed<GENERAL_NAMES_free>>;

constexpr int kMostNames = 64;  // of one certificate; the rest of a longer list is refused

NamesPtr NamesOf(const X509* certificate) {
  return NamesPtr(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
}

std::string Text(const ASN1_STRING* text) {
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
          static_cast<std::size_t>(ASN1_STRING_length(text))};
}

std::string AddressText(const ASN1_OCTET_STRING* address) {
  char out[INET6_ADDRSTRLEN] = {};
  const int size = ASN1_STRING_length(address);
  if (size != 4 && size != 16) return "?";
  ::inet_ntop(size == 4 ? AF_INET : AF_INET6, ASN1_STRING_get0_data(address), out, sizeof(out));
  return out;
}

absl::Time TimeOf(const ASN1_TIME* time) {
  tm parts{};
  if (time == nullptr || ASN1_TIME_to_tm(time, &parts) != 1) return absl::InfinitePast();
  return absl::FromTM(parts, absl::UTCTimeZone());
}

std::string SubjectOf(const X509* certificate) {
  const BioPtr out(BIO_new(BIO_s_mem()));
  X509_NAME_print_ex(out.get(), X509_get_subject_name(certificate), 0,
                     XN_FLAG_ONELINE & ~ASN1_STRFLGS_ESC_MSB);
  std::string text = BioText(out.get()).substr(0, 120);
  for (char& one : text)
    if (!absl::ascii_isprint(static_cast<unsigned char>(one))) one = '?';
  return text;
}

std::string HostText(const X509* certificate) {
  const auto hosts = HostsOf(certificate);
  return hosts.empty() ? "no host" : absl::StrJoin(hosts, ", ");
}

}  // namespace

std::string SerialText(const ASN1_INTEGER* serial) {
  return absl::BytesToHexString(Text(serial).substr(0, 20));
}
std::string SerialOf(const X509* certificate) {
  return SerialText(X509_get0_serialNumber(certificate));
}

absl::StatusOr<Identity> IdentityOf(const X509* certificate) {
  std::vector<std::string> uris;
  const auto names = NamesOf(certificate);
  const int count = names == nullptr ? 0 : sk_GENERAL_NAME_num(names.get());
  if (count > kMostNames)
    return absl::InvalidArgumentError(
        Cat("the certificate has ", count, " alternative names; at most ", kMostNames, " are allowed"));
  for (int at = 0; at < count; ++at) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), at);
    if (name->type == GEN_URI) uris.push_back(Text(name->d.uniformResourceIdentifier));
  }
  TROUPE_ASSIGN_OR_RETURN(Identity identity, ParseIdentityUris(uris));
  identity.serial = SerialOf(certificate);
  return identity;
}

std::vector<std::string> HostsOf(const X509* certificate) {
  std::vector<std::string> hosts;
  const auto names = NamesOf(certificate);
  const int count = names == nullptr ? 0 : std::min(sk_GENERAL_NAME_num(names.get()), kMostNames);
  for (int at = 0; at < count; ++at) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), at);
    if (name->type == GEN_DNS) hosts.push_back(Text(name->d.dNSName));
    if (name->type == GEN_IPADD) hosts.push_back(AddressText(name->d.iPAddress));
  }
  return hosts;
}

absl::Time NotBefore(const X509* certificate) {
  return TimeOf(X509_get0_notBefore(certificate));
}
absl::Time NotAfter(const X509* certificate) {
  return TimeOf(X509_get0_notAfter(certificate));
}

std::string TimeText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", time, absl::UTCTimeZone());
}

std::string Describe(const X509* certificate) {
  if (const auto identity = IdentityOf(certificate); identity.ok()) return identity->ToString();
  return Cat("'", SubjectOf(certificate), "' (serial ", SerialOf(certificate), ")");
}

std::string ExplainVerification(int code, const X509* certificate, std::string_view host) {
  const std::string which = Cat("certificate ", Describe(certificate));
  switch (code) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return Cat(which, " is expired since ", TimeText(NotAfter(certificate)),
                 "; renew it with 'troupe ca renew'");
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return Cat(which, " is not valid before ", TimeText(NotBefore(certificate)),
                 "; compare the clocks of the two machines");
    case X509_V_ERR_CERT_REVOKED:
      return Cat(which, " is revoked; issue a new one with 'troupe ca issue' if its holder may come back");
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
      return Cat(which,
                 " is signed by an unknown certificate authority; all members of a cluster need "
                 "certificates of the same authority");
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return Cat(which, " is for ", HostText(certificate), " and not for the host '", host,
                 "' that was dialled; issue it with '--host ", host, "', or dial a host that it names");
    case X509_V_ERR_INVALID_PURPOSE:
      return Cat(which,
                 " may not be used on this side of a connection: admins and readers only dial, "
                 "daemons also listen");
    case X509_V_ERR_UNABLE_TO_GET_CRL:
      return Cat(which,
                 ": the revocation list is not of its certificate authority; copy revoked.pem from "
                 "the folder of 'troupe ca'");
    case X509_V_ERR_CRL_HAS_EXPIRED:
    case X509_V_ERR_CRL_NOT_YET_VALID:
      return Cat(which,
                 ": the revocation list is out of date; copy revoked.pem from the folder of 'troupe ca'");
    default:
      return Cat(which, " is not accepted: ", X509_verify_cert_error_string(code));
  }
}

}  // namespace troupe::security
