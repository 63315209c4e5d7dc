// Owners of OpenSSL's objects, and its errors as text.
#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::security {

template <auto Free>
struct Freed {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};
using BioPtr = std::unique_ptr<BIO, Freed<BIO_free_all>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;
using X509Ptr = std::unique_ptr<X509, Freed<X509_free>>;
using CrlPtr = std::unique_ptr<X509_CRL, Freed<X509_CRL_free>>;
using StorePtr = std::unique_ptr<X509_STORE, Freed<X509_STORE_free>>;
using SslPtr = std::unique_ptr<SSL, Freed<SSL_free>>;
using ContextPtr = std::unique_ptr<SSL_CTX, Freed<SSL_CTX_free>>;

// The errors of this thread's queue, first to last, and empties it. "no reason given" when there is none.
[[nodiscard]] std::string TakeOpenSslErrors();

[[nodiscard]] BioPtr ReadOnlyBio(std::string_view text);  // reads `text` in place
[[nodiscard]] std::string BioText(BIO* bio);              // what was written to a memory BIO

}  // namespace troupe::security
