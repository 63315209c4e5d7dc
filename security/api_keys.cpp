#include "security/api_keys.hpp"

#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

#include <array>

#include "base/status.hpp"
#include "security/identity.hpp"
#include "security/openssl_pointers.hpp"
#include "security/text.hpp"

namespace troupe::security {

namespace {

struct NamedScope {
  proto::KeyScope scope;
  std::string_view name;
};
constexpr NamedScope kScopes[] = {{proto::KEY_SCOPE_INFER, "infer"},
                                  {proto::KEY_SCOPE_DEPLOY, "deploy"},
                                  {proto::KEY_SCOPE_ADMIN, "admin"},
                                  {proto::KEY_SCOPE_READ, "read"}};

}  // namespace

absl::StatusOr<std::string> NewApiKey() {
  std::array<unsigned char, 32> random{};
  if (RAND_bytes(random.data(), static_cast<int>(random.size())) != 1)
    return absl::InternalError(Cat("no random bits for a key: ", TakeOpenSslErrors()));
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text(kKeyPrefix);
  for (const unsigned char byte : random) {
    text += kDigits[byte >> 4U];
    text += kDigits[byte & 15U];
  }
  OPENSSL_cleanse(random.data(), random.size());
  return text;
}

std::string DigestOfKey(std::string_view text) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

std::string_view ScopeName(proto::KeyScope scope) {
  for (const auto& known : kScopes)
    if (known.scope == scope) return known.name;
  return "unknown";
}

absl::StatusOr<proto::KeyScope> ParseScope(std::string_view text) {
  for (const auto& known : kScopes)
    if (known.name == text) return known.scope;
  return absl::InvalidArgumentError(
      Cat("'", text.substr(0, 40), "' is not a scope; the scopes are infer, deploy, admin and read"));
}

bool Allows(const proto::ApiKeyRecord& key, proto::KeyScope scope) {
  for (const auto held : key.scopes())
    if (held == scope || held == proto::KEY_SCOPE_ADMIN) return true;
  return false;
}

absl::Status ApiKeyTable::ValidateCreate(const proto::ApiKeyRecord& key) const {
  TROUPE_RETURN_IF_ERROR(CheckName(key.name()));
  if (key.scopes().empty())
    return absl::InvalidArgumentError(
        Cat("key '", key.name(),
            "' has no scope; give --scope infer, deploy, admin or read (several with commas)"));
  for (const auto scope : key.scopes())
    if (ScopeName(static_cast<proto::KeyScope>(scope)) == "unknown")
      return absl::InvalidArgumentError(Cat("key '", key.name(),
                                            "' has a scope that this release does not know (number ",
                                            static_cast<int>(scope), ")"));
  if (key.sha256().size() != SHA256_DIGEST_LENGTH)
    return absl::InvalidArgumentError(
        Cat("the digest of key '", key.name(), "' has ", key.sha256().size(), " bytes, and not 32"));
  if (keys_.contains(key.name()))
    return absl::AlreadyExistsError(Cat("there is a key '", key.name(),
                                        "' already; revoke it first (troupe key ", "revoke ", key.name(),
                                        "), or choose another name"));
  if (keys_.size() >= kMostKeys)
    return absl::ResourceExhaustedError(
        Cat("there are ", keys_.size(), " keys, and no more are kept; revoke one that is not used"));
  return absl::OkStatus();
}

absl::Status ApiKeyTable::ValidateRevoke(std::string_view name) const {
  if (keys_.contains(std::string(name))) return absl::OkStatus();
  return absl::NotFoundError(
      Cat("there is no key '", name.substr(0, kMaxNameLength), "'; 'troupe key list' shows all keys"));
}

const proto::ApiKeyRecord* ApiKeyTable::Find(std::string_view text) const {
  if (text.size() != kKeyLength || !text.starts_with(kKeyPrefix)) return nullptr;
  const std::string digest = DigestOfKey(text);
  const proto::ApiKeyRecord* found = nullptr;
  for (const auto& [name, key] : keys_) {
    if (key.sha256().size() == digest.size() &&
        CRYPTO_memcmp(key.sha256().data(), digest.data(), digest.size()) == 0)
      found = &key;
  }
  return found;
}

}  // namespace troupe::security
