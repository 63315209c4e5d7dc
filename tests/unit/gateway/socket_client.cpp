#include "tests/unit/gateway/socket_client.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "gateway/text.hpp"

namespace troupe::gateway {

SSL_CTX* SocketClient::tls_context_ = nullptr;

SocketClient::SocketClient(std::uint16_t port)
    : descriptor_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int connected = ::connect(descriptor_, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  EXPECT_EQ(connected, 0);
  const timeval patience{60, 0};  // a broken server must not hang the test
  ::setsockopt(descriptor_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  if (tls_context_ == nullptr) return;
  ::signal(SIGPIPE, SIG_IGN);  // OpenSSL's own socket layer raises it
  tls_ = SSL_new(tls_context_);
  SSL_set_fd(tls_, descriptor_);
  if (SSL_connect(tls_) == 1) return;
  failed_ = true;
  SSL_free(std::exchange(tls_, nullptr));
}

SocketClient::~SocketClient() {
  Close();
}

void SocketClient::Close(bool reset) {
  if (descriptor_ < 0) return;
  if (tls_ != nullptr) SSL_free(std::exchange(tls_, nullptr));
  if (reset) {
    const linger now{1, 0};
    ::setsockopt(descriptor_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  }
  ::close(std::exchange(descriptor_, -1));
}

void SocketClient::CloseSending() {
  if (tls_ != nullptr) SSL_shutdown(tls_);
  ::shutdown(descriptor_, SHUT_WR);
}

bool SocketClient::Send(std::string_view bytes) {
  if (failed_) return false;
  if (tls_ != nullptr) return SSL_write(tls_, bytes.data(), static_cast<int>(bytes.size())) > 0;
  while (!bytes.empty()) {
    const ssize_t sent = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

bool SocketClient::Fill() {
  std::array<char, 65536> piece;
  if (failed_) return false;
  const ssize_t got = tls_ != nullptr ? SSL_read(tls_, piece.data(), static_cast<int>(piece.size()))
                                      : ::recv(descriptor_, piece.data(), piece.size(), 0);
  if (got <= 0) return false;
  buffer_.append(piece.data(), static_cast<std::size_t>(got));
  return true;
}

bool SocketClient::AtEnd() {
  return buffer_.empty() && !Fill();
}

ClientResponse SocketClient::Read(bool head_only) {
  ClientResponse response;
  std::size_t end = 0;
  while ((end = buffer_.find("\r\n\r\n")) == std::string::npos) {
    if (!Fill()) return response;
  }
  response.code = std::stoi(buffer_.substr(9, 3));
  std::size_t at = buffer_.find("\r\n") + 2;
  while (at < end) {
    const std::size_t line_end = buffer_.find("\r\n", at);
    const std::size_t colon = buffer_.find(": ", at);
    std::string name = buffer_.substr(at, colon - at);
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    response.headers[name] = buffer_.substr(colon + 2, line_end - colon - 2);
    at = line_end + 2;
  }
  buffer_.erase(0, end + 4);
  if (head_only || response.code == 100) return response;
  const std::size_t length = std::stoul(response.headers["content-length"]);
  while (buffer_.size() < length) {
    if (!Fill()) return ClientResponse{};
  }
  response.body = buffer_.substr(0, length);
  buffer_.erase(0, length);
  return response;
}

ClientResponse SocketClient::Ask(std::string_view method, std::string_view target, std::string_view body,
                                 std::string_view headers) {
  Send(Cat(method, " ", target, " HTTP/1.1\r\nHost: test\r\nContent-Length: ", body.size(), "\r\n", headers,
           "\r\n", body));
  return Read(method == "HEAD");
}

}  // namespace troupe::gateway
