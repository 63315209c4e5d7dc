#include "base/digest.hpp"

#include <openssl/evp.h>

#include <algorithm>
#include <array>

#include "absl/strings/escaping.h"
#include "base/check.hpp"

namespace troupe {

struct Sha256::Context {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(evp); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  TROUPE_CHECK(context_->evp && EVP_DigestInit_ex(context_->evp, EVP_sha256(), nullptr) == 1,
               "SHA-256 is missing");
}

Sha256::~Sha256() = default;

void Sha256::Update(std::span<const std::byte> data) {
  TROUPE_CHECK(EVP_DigestUpdate(context_->evp, data.data(), data.size()) == 1, "hashing failed");
}

void Sha256::Update(std::string_view data) {
  Update(std::as_bytes(std::span(data)));
}

std::string Sha256::Finish() {
  std::array<unsigned char, 32> raw{};
  unsigned int length = 0;
  TROUPE_CHECK(EVP_DigestFinal_ex(context_->evp, raw.data(), &length) == 1 && length == raw.size(),
               "hashing failed");
  return absl::BytesToHexString({reinterpret_cast<const char*>(raw.data()), raw.size()});
}

std::string Sha256Hex(std::string_view data) {
  Sha256 hash;
  hash.Update(data);
  return hash.Finish();
}

bool IsSha256Hex(std::string_view text) {
  return text.size() == 64 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

}  // namespace troupe
