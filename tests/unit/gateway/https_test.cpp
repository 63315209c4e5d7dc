// What HTTPS adds to the server: handshakes, clients that are refused in them, and a certificate that
// changes.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "gateway/http_server.hpp"
#include "gateway/text.hpp"
#include "security/certificate.hpp"
#include "tests/unit/gateway/echo_handler.hpp"
#include "tests/unit/gateway/https_files.hpp"
#include "tests/unit/gateway/socket_client.hpp"

namespace troupe::gateway {
namespace {

using security::ServerCertificate;

class Https : public testing::Test {
 protected:
  Https() {
    options_.sweep_interval = std::chrono::milliseconds(5);
    options_.handshake_timeout = std::chrono::minutes(1);
    options_.certificate = certificate_ = files_.Load();
    SocketClient::SpeakTls(files_.client());
  }
  ~Https() override {
    handler_.Release();
    SocketClient::SpeakTls(nullptr);
  }
  void Start() {
    auto server = HttpServer::Start(options_, handler_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  [[nodiscard]] std::uint64_t Refused(TlsRefusal reason) const {
    return server_->load().refused_tls[static_cast<std::size_t>(reason)];
  }
  void WaitForRefused(TlsRefusal reason, std::uint64_t count) const {
    while (Refused(reason) < count) std::this_thread::yield();
  }
  static std::string SerialSeen(const SocketClient& client) {
    return security::SerialOf(SSL_get0_peer_certificate(client.tls()));
  }

  HttpsFiles files_;
  std::shared_ptr<ServerCertificate> certificate_;
  HttpServerOptions options_;
  EchoHandler handler_;
  std::unique_ptr<HttpServer> server_;
};

// A client of one version or protocol; returns whether its handshake succeeds.
bool Shakes(const HttpsFiles& files, std::uint16_t port, int version, const std::string& protocols = "",
            std::string* chosen = nullptr, const char* ciphers = nullptr) {
  SSL_CTX* context = files.client();
  SSL_CTX_set_min_proto_version(context, version);
  SSL_CTX_set_max_proto_version(context, version);
  SSL_CTX_set_alpn_protos(context, reinterpret_cast<const unsigned char*>(protocols.data()),
                          static_cast<unsigned>(protocols.size()));
  if (ciphers != nullptr) SSL_CTX_set_cipher_list(context, ciphers);
  SocketClient client(port);
  if (client.tls() == nullptr) return false;
  if (client.Ask("GET", "/a").code != 200) return false;  // the server has ended the handshake, too
  const unsigned char* protocol = nullptr;
  unsigned length = 0;
  SSL_get0_alpn_selected(client.tls(), &protocol, &length);
  if (chosen != nullptr) chosen->assign(reinterpret_cast<const char*>(protocol), length);
  return true;
}

TEST_F(Https, VersionsCiphersAndProtocols) {
  Start();
  std::string chosen;
  EXPECT_TRUE(Shakes(files_, server_->port(), TLS1_3_VERSION, "\x02h2\x08http/1.1", &chosen));
  EXPECT_EQ(chosen, "http/1.1");
  EXPECT_TRUE(Shakes(files_, server_->port(), TLS1_2_VERSION, "", &chosen));
  EXPECT_EQ(chosen, "");
  EXPECT_EQ(server_->load().handshakes, 2U);
  EXPECT_FALSE(Shakes(files_, server_->port(), TLS1_3_VERSION, "\x02h2"));
  EXPECT_FALSE(Shakes(files_, server_->port(), TLS1_1_VERSION));
  EXPECT_FALSE(Shakes(files_, server_->port(), TLS1_2_VERSION, "", nullptr, "AES128-SHA:ECDHE+AES+SHA1"));
  WaitForRefused(TlsRefusal::kFailed, 3);
}

TEST_F(Https, AClientKnowsAWrongHost) {
  Start();
  X509_VERIFY_PARAM_set1_host(SSL_CTX_get0_param(files_.client()), "api.example", 0);
  const SocketClient client(server_->port());
  EXPECT_EQ(client.tls(), nullptr);
  WaitForRefused(TlsRefusal::kFailed, 1);
}

TEST_F(Https, APlainRequestIsToldWhatThePortSpeaks) {
  Start();
  SocketClient::SpeakTls(nullptr);
  for (const std::string_view bytes :
       {"GET /a HTTP/1.1\r\nHost: x\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"}) {
    SocketClient client(server_->port());
    client.Send(bytes);
    const ClientResponse response = client.Read();
    EXPECT_EQ(response.code, 400);
    EXPECT_NE(response.body.find("https://"), std::string::npos);
    EXPECT_TRUE(client.AtEnd());
  }
  EXPECT_EQ(Refused(TlsRefusal::kPlainHttp), 2U);
  EXPECT_EQ(server_->load().requests, 0U);
}

TEST_F(Https, AHandshakeThatDoesNotEndIsGivenUp) {
  options_.handshake_timeout = std::chrono::milliseconds(20);
  Start();
  SocketClient::SpeakTls(nullptr);
  SocketClient silent(server_->port());
  SocketClient begins(server_->port());
  begins.Send(std::string_view("\x16\x03\x01\x02\x00", 5));
  EXPECT_TRUE(silent.AtEnd());
  EXPECT_TRUE(begins.AtEnd());
  WaitForRefused(TlsRefusal::kSlow, 2);
  while (server_->load().connections > 0) std::this_thread::yield();
}

// One address may have a number of handshakes: one more is closed, and then slow ones are closed to make
// room.
TEST_F(Https, HandshakesAreBoundedAndSlowOnesMakeRoom) {
  options_.max_handshakes_client = 2;
  options_.short_transfer_timeout = Duration::zero();
  Start();
  SocketClient::SpeakTls(nullptr);
  SocketClient a(server_->port());
  SocketClient b(server_->port());
  while (server_->load().connections < 2) std::this_thread::yield();
  SocketClient::SpeakTls(files_.client());
  const SocketClient beyond(server_->port());
  EXPECT_EQ(beyond.tls(), nullptr);
  WaitForRefused(TlsRefusal::kTooMany, 1);
  EXPECT_TRUE(a.AtEnd());
  EXPECT_TRUE(b.AtEnd());
  WaitForRefused(TlsRefusal::kSlow, 2);
  while (server_->load().connections > 0) std::this_thread::yield();
  // While room is short a handshake has no time at all, so that the client tries again and again.
  int code = 0;
  while (code != 200) code = SocketClient(server_->port()).Ask("GET", "/a").code;
}

TEST_F(Https, ProbesComeThroughWhenAllConnectionsAreTaken) {
  options_.max_connections = 1;
  options_.probe_connections = 1;
  Start();
  SocketClient holds(server_->port());
  EXPECT_EQ(holds.Ask("GET", "/a").code, 200);
  SocketClient probe(server_->port());
  EXPECT_EQ(probe.Ask("GET", "/probe").code, 200);
  EXPECT_EQ(probe.Ask("GET", "/b").code, 503);
}

TEST_F(Https, ANewCertificateIsForNewConnections) {
  Start();
  SocketClient before(server_->port());
  const auto old = files_.serial();
  EXPECT_FALSE(*certificate_->Reload());
  files_.Renew();
  EXPECT_TRUE(*certificate_->Reload());
  EXPECT_FALSE(*certificate_->Reload());
  EXPECT_TRUE(*certificate_->Reload(/*forced=*/true));
  SocketClient after(server_->port());
  EXPECT_EQ(after.Ask("GET", "/a").code, 200);
  EXPECT_EQ(before.Ask("GET", "/a").code, 200);
  EXPECT_EQ(SerialSeen(before), old);
  EXPECT_EQ(SerialSeen(after), files_.serial());
}

TEST_F(Https, ABadFileKeepsTheOldCertificateAndIsToldOnce) {
  Start();
  const auto good = files_.serial();
  ASSERT_TRUE(security::ReplaceFile(files_.files().key, "nonsense", 0600).ok());
  const auto refused = certificate_->Reload();
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("the old one stays"), absl::string_view::npos);
  EXPECT_FALSE(*certificate_->Reload());
  const SocketClient client(server_->port());
  EXPECT_EQ(SerialSeen(client), good);
  files_.Renew();
  EXPECT_TRUE(*certificate_->Reload());
}

TEST_F(Https, FilesThatCannotBeUsedAreNamed) {
  const auto says = [this](const std::string& text) {
    const auto loaded = ServerCertificate::Load(files_.files());
    ASSERT_FALSE(loaded.ok());
    EXPECT_NE(loaded.status().message().find(text), absl::string_view::npos) << loaded.status();
    EXPECT_EQ(loaded.status().message().find('\n'), absl::string_view::npos);
  };
  ::chmod(files_.files().key.c_str(), 0644);
  says("chmod 600");
  ::chmod(files_.files().key.c_str(), 0600);
  HttpsFiles other;
  ASSERT_TRUE(security::ReplaceFile(files_.files().key,
                                    *security::ReadSmallFile(other.files().key, security::Secrecy::kSecret),
                                    0600)
                  .ok());
  says("does not belong to the certificate");
  ::unlink(files_.files().certificate.c_str());
  says("No such file");
}

TEST_F(Https, WhatIsWrongWithTheTimeIsSaid) {
  const auto now = absl::Now();
  EXPECT_EQ(security::ValidityWarning(*certificate_->Current(), now), "");
  EXPECT_NE(
      security::ValidityWarning(*certificate_->Current(), now - absl::Hours(240)).find("not valid before"),
      std::string::npos);
  EXPECT_NE(security::ValidityWarning(*certificate_->Current(), now + absl::Hours(24 * 290)).find("ends at"),
            std::string::npos);
  files_.Renew(now - absl::Hours(1));  // the server serves it all the same
  EXPECT_TRUE(*certificate_->Reload());
  EXPECT_NE(security::ValidityWarning(*certificate_->Current(), now).find("is expired"), std::string::npos);
}

}  // namespace
}  // namespace troupe::gateway
