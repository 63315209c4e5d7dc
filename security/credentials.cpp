#include "security/credentials.hpp"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>

#include "base/check.hpp"
#include "base/status.hpp"
#include "security/text.hpp"

namespace troupe::security {

namespace {

// Where the first verification failure of a connection is kept: a std::string, owned by the SSL.
void FreeExplanation(void*, void* data, CRYPTO_EX_DATA*, int, long, void*) {
  delete static_cast<std::string*>(data);
}
int ExplanationIndex() {
  static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, FreeExplanation);
  return index;
}
std::string ExpectedHost(const SSL* connection) {
  X509_VERIFY_PARAM* wanted = SSL_get0_param(const_cast<SSL*>(connection));
  if (const char* host = X509_VERIFY_PARAM_get0_host(wanted, 0)) return host;
  char* address = X509_VERIFY_PARAM_get1_ip_asc(wanted);
  std::string text = address == nullptr ? "" : address;
  OPENSSL_free(address);
  return text;
}

// The certificate that the error line names: the one whose own dates are wrong, else the peer's. For an
// authority of the same name with another key, OpenSSL's current certificate would be our authority, which is
// not at fault.
X509* Blamed(X509_STORE_CTX* store) {
  const int error = X509_STORE_CTX_get_error(store);
  X509* current = X509_STORE_CTX_get_current_cert(store);
  const bool dates = error == X509_V_ERR_CERT_HAS_EXPIRED || error == X509_V_ERR_CERT_NOT_YET_VALID;
  return dates && current != nullptr ? current : X509_STORE_CTX_get0_cert(store);
}

// OpenSSL forgets the certificate of a peer that it refused, so that what is wrong with it is written down
// here.
int NoteVerification(int good, X509_STORE_CTX* store) {
  if (good == 1) return 1;
  auto* connection =
      static_cast<SSL*>(X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
  X509* certificate = Blamed(store);
  if (connection == nullptr || certificate == nullptr) return 0;
  if (SSL_get_ex_data(connection, ExplanationIndex()) != nullptr) return 0;
  SSL_set_ex_data(connection, ExplanationIndex(),
                  new std::string(ExplainVerification(X509_STORE_CTX_get_error(store), certificate,
                                                      ExpectedHost(connection))));
  return 0;
}

// sk_X509_free is a macro. The certificates belong to their own pointers.
struct FreedStack {
  void operator()(STACK_OF(X509) * stack) const { sk_X509_free(stack); }
};

struct Files {
  std::vector<X509Ptr> authority, chain;
  KeyPtr key;
  std::vector<CrlPtr> revocations;
};

absl::StatusOr<Files> Read(const CredentialFiles& names) {
  Files files;
  TROUPE_ASSIGN_OR_RETURN(const auto authority, ReadSmallFile(names.authority, Secrecy::kPublic));
  TROUPE_ASSIGN_OR_RETURN(files.authority, ParseCertificates(authority, names.authority));
  TROUPE_ASSIGN_OR_RETURN(const auto chain, ReadSmallFile(names.certificate, Secrecy::kPublic));
  TROUPE_ASSIGN_OR_RETURN(files.chain, ParseCertificates(chain, names.certificate));
  TROUPE_ASSIGN_OR_RETURN(const auto key, ReadSmallFile(names.key, Secrecy::kSecret));
  TROUPE_ASSIGN_OR_RETURN(files.key, ParseKey(key, names.key));
  if (names.revocations.empty() || StampOf(names.revocations) == FileStamp{}) return files;
  TROUPE_ASSIGN_OR_RETURN(const auto revocations, ReadSmallFile(names.revocations, Secrecy::kPublic));
  TROUPE_ASSIGN_OR_RETURN(files.revocations, ParseRevocations(revocations, names.revocations));
  return files;
}

StorePtr MakeStore(const Files& files) {
  StorePtr store(X509_STORE_new());
  for (const auto& one : files.authority) X509_STORE_add_cert(store.get(), one.get());
  for (const auto& one : files.revocations) X509_STORE_add_crl(store.get(), one.get());
  if (!files.revocations.empty()) X509_STORE_set_flags(store.get(), X509_V_FLAG_CRL_CHECK);
  return store;
}

enum class Dates { kChecked, kIgnored };
absl::Status Verify(X509_STORE* store, X509* certificate, const std::vector<X509Ptr>& chain, Dates dates) {
  const std::unique_ptr<X509_STORE_CTX, Freed<X509_STORE_CTX_free>> check(X509_STORE_CTX_new());
  const std::unique_ptr<STACK_OF(X509), FreedStack> untrusted(sk_X509_new_null());
  for (const auto& one : chain) sk_X509_push(untrusted.get(), one.get());
  if (X509_STORE_CTX_init(check.get(), store, certificate, untrusted.get()) != 1)
    return absl::InternalError(Cat("cannot check a certificate: ", TakeOpenSslErrors()));
  if (dates == Dates::kIgnored) X509_STORE_CTX_set_flags(check.get(), X509_V_FLAG_NO_CHECK_TIME);
  if (X509_verify_cert(check.get()) == 1) return absl::OkStatus();
  X509* wrong = Blamed(check.get());
  const auto text =
      ExplainVerification(X509_STORE_CTX_get_error(check.get()), wrong == nullptr ? certificate : wrong, "");
  ERR_clear_error();
  return absl::UnauthenticatedError(text);
}

absl::StatusOr<ContextPtr> MakeContext(const SSL_METHOD* method, const Files& files, X509_STORE* store) {
  ERR_clear_error();
  ContextPtr context(SSL_CTX_new(method));
  bool good = context != nullptr && SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION) == 1 &&
              SSL_CTX_use_certificate(context.get(), files.chain.front().get()) == 1 &&
              SSL_CTX_use_PrivateKey(context.get(), files.key.get()) == 1;
  for (std::size_t at = 1; good && at < files.chain.size(); ++at)
    good = SSL_CTX_add1_chain_cert(context.get(), files.chain[at].get()) == 1;
  if (!good) return absl::InvalidArgumentError(Cat("cannot use the certificate: ", TakeOpenSslErrors()));
  SSL_CTX_set1_cert_store(context.get(), store);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NoteVerification);
  // A ticket would let a peer come back without its certificate being checked against today's list.
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                      SSL_MODE_RELEASE_BUFFERS);
  return context;
}

// What the other side thinks of our certificate, when it closed the connection with an alert.
std::string RefusalText(int alert) {
  switch (alert) {
    case SSL_AD_CERTIFICATE_EXPIRED:
      return "it takes our certificate for expired; renew it with 'troupe ca renew'";
    case SSL_AD_CERTIFICATE_REVOKED:
      return "our certificate is revoked there; issue a new one with 'troupe ca issue'";
    case SSL_AD_UNKNOWN_CA:
      return "it does not know the certificate authority of our certificate; use one of its cluster";
    case SSL_AD_CERTIFICATE_REQUIRED:
      return "it wants a certificate and we have shown none";
    case SSL_AD_PROTOCOL_VERSION:
      return "it does not speak TLS 1.3";
    case SSL_AD_BAD_CERTIFICATE:
    case SSL_AD_CERTIFICATE_UNKNOWN:
    case SSL_AD_UNSUPPORTED_CERTIFICATE:
      return "it does not accept our certificate; its log says why";
    default:
      return Cat("it ended the handshake with the alert '", SSL_alert_desc_string_long(alert), "'");
  }
}

}  // namespace

CredentialFiles CredentialFiles::InFolder(const std::string& folder) {
  return {Cat(folder, "/ca.pem"), Cat(folder, "/certificate.pem"), Cat(folder, "/key.pem"),
          Cat(folder, "/revoked.pem")};
}

absl::StatusOr<std::shared_ptr<const Snapshot>> Snapshot::Load(const CredentialFiles& names) {
  TROUPE_ASSIGN_OR_RETURN(const Files files, Read(names));
  X509* own = files.chain.front().get();
  if (X509_check_private_key(own, files.key.get()) != 1) {
    ERR_clear_error();
    return absl::InvalidArgumentError(Cat("the key in ", names.key, " does not belong to the certificate ",
                                          Describe(own), " in ", names.certificate));
  }
  std::shared_ptr<Snapshot> made(new Snapshot);
  made->store_ = MakeStore(files);
  TROUPE_RETURN_IF_ERROR(Verify(made->store_.get(), own, files.chain, Dates::kChecked));
  TROUPE_ASSIGN_OR_RETURN(made->identity_, IdentityOf(own));
  made->not_after_ = NotAfter(own);
  TROUPE_ASSIGN_OR_RETURN(made->server_, MakeContext(TLS_server_method(), files, made->store_.get()));
  TROUPE_ASSIGN_OR_RETURN(made->client_, MakeContext(TLS_client_method(), files, made->store_.get()));
  return std::shared_ptr<const Snapshot>(std::move(made));
}

absl::Status Snapshot::CheckPeer(X509* certificate, const std::vector<X509Ptr>& chain) const {
  if (certificate == nullptr) return absl::UnauthenticatedError("the peer has shown no certificate");
  return Verify(store_.get(), certificate, chain, Dates::kIgnored);
}

absl::StatusOr<std::shared_ptr<Credentials>> Credentials::Load(CredentialFiles files) {
  std::shared_ptr<Credentials> made(new Credentials(std::move(files)));
  auto stamps = made->Stamps();
  TROUPE_ASSIGN_OR_RETURN(auto snapshot, Snapshot::Load(made->files_));
  const std::lock_guard lock(made->mutex_);
  made->seen_ = std::move(stamps);
  made->current_ = std::move(snapshot);
  return made;
}

std::shared_ptr<const Snapshot> Credentials::Current() const {
  const std::lock_guard lock(mutex_);
  return current_;
}

absl::StatusOr<bool> Credentials::Reload(bool forced) {
  // Taken before the files are read: what is written meanwhile shows as a change at the next look.
  auto stamps = Stamps();
  bool lost = false;
  {
    const std::lock_guard lock(mutex_);
    if (!forced && stamps == seen_) return false;
    has_list_ = has_list_ || seen_.back() != FileStamp{};
    lost = has_list_ && stamps.back() == FileStamp{};
    seen_ = std::move(stamps);
  }
  auto snapshot = lost ? absl::NotFoundError(Cat("the list of revoked certificates ", files_.revocations,
                                                 " is not there any more; put it back"))
                       : Snapshot::Load(files_);
  if (!snapshot.ok())
    return absl::Status(
        snapshot.status().code(),
        Cat("the new credentials are refused and the old ones stay: ", snapshot.status().message()));
  const std::lock_guard lock(mutex_);
  current_ = *std::move(snapshot);
  return true;
}

std::vector<FileStamp> Credentials::Stamps() const {
  return {StampOf(files_.authority), StampOf(files_.certificate), StampOf(files_.key),
          StampOf(files_.revocations)};
}

absl::Status ExpectHost(SSL* connection, const std::string& host) {
  X509_VERIFY_PARAM* wanted = SSL_get0_param(connection);
  X509_VERIFY_PARAM_set_hostflags(wanted,
                                  X509_CHECK_FLAG_NEVER_CHECK_SUBJECT | X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  unsigned char address[sizeof(in6_addr)];
  const bool numeric =
      ::inet_pton(AF_INET, host.c_str(), address) == 1 || ::inet_pton(AF_INET6, host.c_str(), address) == 1;
  const bool good = !host.empty() && (numeric ? X509_VERIFY_PARAM_set1_ip_asc(wanted, host.c_str())
                                              : SSL_set1_host(connection, host.c_str())) == 1;
  if (!good) return absl::InvalidArgumentError(Cat("'", host, "' is not a host name or an IP address"));
  if (!numeric) SSL_set_tlsext_host_name(connection, host.c_str());
  return absl::OkStatus();
}

ShownCertificate CertificateOf(const SSL* connection) {
  ShownCertificate shown;
  shown.certificate.reset(SSL_get1_peer_certificate(connection));
  STACK_OF(X509)* chain = SSL_get_peer_cert_chain(connection);
  for (int at = 0; chain != nullptr && at < sk_X509_num(chain); ++at) {
    X509* one = sk_X509_value(chain, at);
    X509_up_ref(one);
    shown.chain.emplace_back(one);
  }
  return shown;
}

absl::StatusOr<Identity> PeerIdentity(const SSL* connection) {
  const X509* certificate = SSL_get0_peer_certificate(connection);
  if (certificate == nullptr) return absl::UnauthenticatedError("the peer has shown no certificate");
  return IdentityOf(certificate);
}

absl::Status HandshakeFailure(const SSL* connection, std::string_view peer) {
  const auto error = ERR_peek_error();
  const bool alert = ERR_GET_LIB(error) == ERR_LIB_SSL && ERR_GET_REASON(error) > SSL_AD_REASON_OFFSET;
  const int reason = ERR_GET_REASON(error);
  const std::string all = TakeOpenSslErrors();
  if (const auto* noted = static_cast<std::string*>(SSL_get_ex_data(connection, ExplanationIndex())))
    return absl::UnauthenticatedError(Cat(peer, ": ", *noted));
  if (alert) return absl::UnauthenticatedError(Cat(peer, ": ", RefusalText(reason - SSL_AD_REASON_OFFSET)));
  if (reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE)
    return absl::UnauthenticatedError(
        Cat(peer, ": it has shown no certificate; give it one made with 'troupe ca issue'"));
  if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST)
    return absl::UnauthenticatedError(
        Cat(peer, ": it does not speak TLS; start it with certificates of this cluster"));
  return absl::UnavailableError(
      Cat(peer, ": the TLS handshake failed: ", error == 0 ? "the connection was closed" : all));
}

}  // namespace troupe::security
