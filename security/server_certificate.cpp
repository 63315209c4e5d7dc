#include "security/server_certificate.hpp"

#include <openssl/err.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "security/certificate.hpp"
#include "security/text.hpp"

namespace troupe::security {

namespace {

constexpr char kCiphers[] = "ECDHE+AESGCM:ECDHE+CHACHA20";  // of TLS 1.2; all of TLS 1.3's are good
constexpr char kGroups[] = "X25519:P-256:P-384";
constexpr absl::Duration kSoon = absl::Hours(14 * 24);

// Protocols are listed with the length of each in front. A client that offers others only is refused, as RFC
// 7301 wants: it would not understand the answer.
int ChooseProtocol(SSL*, const unsigned char** out, unsigned char* size, const unsigned char* offered,
                   unsigned offered_size, void*) {
  constexpr std::string_view kHttp = "http/1.1";
  std::string_view rest(reinterpret_cast<const char*>(offered), offered_size);
  while (!rest.empty()) {
    const auto length = std::min<std::size_t>(static_cast<unsigned char>(rest.front()), rest.size() - 1);
    const auto one = rest.substr(1, length);
    rest.remove_prefix(1 + length);
    if (one != kHttp) continue;
    *out = reinterpret_cast<const unsigned char*>(one.data());
    *size = static_cast<unsigned char>(one.size());
    return SSL_TLSEXT_ERR_OK;
  }
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

absl::StatusOr<ContextPtr> MakeContext(const std::vector<X509Ptr>& chain, EVP_PKEY* key) {
  ERR_clear_error();
  ContextPtr context(SSL_CTX_new(TLS_server_method()));
  bool good = context != nullptr && SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION) == 1 &&
              SSL_CTX_set_cipher_list(context.get(), kCiphers) == 1 &&
              SSL_CTX_set1_groups_list(context.get(), kGroups) == 1 &&
              SSL_CTX_use_certificate(context.get(), chain.front().get()) == 1 &&
              SSL_CTX_use_PrivateKey(context.get(), key) == 1;
  for (std::size_t at = 1; good && at < chain.size(); ++at)
    good = SSL_CTX_add1_chain_cert(context.get(), chain[at].get()) == 1;
  if (!good) return absl::InvalidArgumentError(Cat("cannot use the certificate: ", TakeOpenSslErrors()));
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_NONE, nullptr);
  SSL_CTX_set_options(context.get(),
                      SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  // Tickets make coming back cheap and keep nothing here. Their keys are the context's, so that none outlives
  // a change of the certificate.
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context.get(), 1);
  SSL_CTX_set_read_ahead(context.get(), 1);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                      SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_alpn_select_cb(context.get(), ChooseProtocol, nullptr);
  return context;
}

absl::StatusOr<std::shared_ptr<const ServerCertificate::Loaded>> LoadFiles(
    const ServerCertificateFiles& files) {
  TROUPE_ASSIGN_OR_RETURN(const auto pem, ReadSmallFile(files.certificate, Secrecy::kPublic));
  TROUPE_ASSIGN_OR_RETURN(const auto chain, ParseCertificates(pem, files.certificate));
  TROUPE_ASSIGN_OR_RETURN(const auto key_pem, ReadSmallFile(files.key, Secrecy::kSecret));
  TROUPE_ASSIGN_OR_RETURN(const auto key, ParseKey(key_pem, files.key));
  X509* own = chain.front().get();
  if (X509_check_private_key(own, key.get()) != 1) {
    ERR_clear_error();
    return absl::InvalidArgumentError(Cat("the key in ", files.key, " does not belong to the certificate ",
                                          Describe(own), ", which is the ", "first one in ",
                                          files.certificate));
  }
  auto loaded = std::make_shared<ServerCertificate::Loaded>();
  loaded->not_before = NotBefore(own);
  loaded->not_after = NotAfter(own);
  loaded->description = Describe(own);
  TROUPE_ASSIGN_OR_RETURN(loaded->context, MakeContext(chain, key.get()));
  return loaded;
}

}  // namespace

absl::StatusOr<std::shared_ptr<ServerCertificate>> ServerCertificate::Load(ServerCertificateFiles files) {
  std::shared_ptr<ServerCertificate> made(new ServerCertificate(std::move(files)));
  const auto stamps = made->Look();
  TROUPE_ASSIGN_OR_RETURN(auto loaded, LoadFiles(made->files_));
  const std::lock_guard lock(made->mutex_);
  made->seen_ = stamps;
  made->current_ = std::move(loaded);
  return made;
}

std::shared_ptr<const ServerCertificate::Loaded> ServerCertificate::Current() const {
  const std::lock_guard lock(mutex_);
  return current_;
}

absl::StatusOr<bool> ServerCertificate::Reload(bool forced) {
  // Taken before the files are read: what is written meanwhile shows as a change at the next look.
  const auto stamps = Look();
  {
    const std::lock_guard lock(mutex_);
    if (!forced && stamps == seen_) return false;
    seen_ = stamps;
  }
  auto loaded = LoadFiles(files_);
  if (!loaded.ok())
    return absl::Status(loaded.status().code(), Cat("the new HTTPS certificate is refused and the old one ",
                                                    "stays: ", loaded.status().message()));
  const std::lock_guard lock(mutex_);
  current_ = *std::move(loaded);
  return true;
}

std::string ValidityWarning(const ServerCertificate::Loaded& loaded, absl::Time now) {
  const std::string which = Cat("the HTTPS certificate ", loaded.description);
  if (now < loaded.not_before)
    return Cat(which, " is not valid before ", TimeText(loaded.not_before),
               ", so that clients refuse it; compare the machine's clock");
  if (now >= loaded.not_after)
    return Cat(which, " is expired since ", TimeText(loaded.not_after),
               ", so that clients refuse it; put a new one in its place (no restart is needed)");
  if (now + kSoon >= loaded.not_after)
    return Cat(which, " ends at ", TimeText(loaded.not_after),
               "; put a new one in its place before that (no restart is needed)");
  return "";
}

}  // namespace troupe::security
