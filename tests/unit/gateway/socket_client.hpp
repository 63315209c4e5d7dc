// A raw blocking client: sends exactly the bytes it is given, and reads responses one after another.
#pragma once

#include <openssl/ssl.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace troupe::gateway {

struct ClientResponse {
  int code = 0;                                // 0: the server closed the connection instead
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
};

class SocketClient {
 public:
  // Each client made from now on begins with a TLS handshake; null: in clear again. A handshake that fails
  // leaves a client that reads nothing.
  static void SpeakTls(SSL_CTX* context) { tls_context_ = context; }

  explicit SocketClient(std::uint16_t port);
  ~SocketClient();
  SocketClient(const SocketClient&) = delete;
  SocketClient& operator=(const SocketClient&) = delete;

  // True when the kernel took all bytes.
  bool Send(std::string_view bytes);
  // `head_only`: the response has no body, even if its Content-Length says so (HEAD).
  ClientResponse Read(bool head_only = false);
  // One whole request with a Content-Length, and its response.
  ClientResponse Ask(std::string_view method, std::string_view target, std::string_view body = "",
                     std::string_view headers = "");
  // Whether the server has closed its side and sent nothing more.
  bool AtEnd();
  void CloseSending();
  // Closes the connection at once; with a reset when `reset`.
  void Close(bool reset = false);
  // The client's TLS; null in clear, or when the handshake failed.
  [[nodiscard]] SSL* tls() const { return tls_; }

 private:
  bool Fill();
  static SSL_CTX* tls_context_;
  int descriptor_ = -1;
  SSL* tls_ = nullptr;
  bool failed_ = false;
  std::string buffer_;
};

}  // namespace troupe::gateway
