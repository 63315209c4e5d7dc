#include "security/credentials.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/err.h>
#include <sys/stat.h>

#include "security/certificate_authority.hpp"
#include "tests/temporary_directory.hpp"

namespace troupe::security {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using SslPtr = std::unique_ptr<SSL, Freed<SSL_free>>;

class CredentialsTest : public testing::Test {
 protected:
  const absl::Time now_ = absl::Now();
  const CertificateAuthority authority_ = MakeAuthority("troupe");

  CertificateAuthority MakeAuthority(const std::string& name) const {
    auto made = CertificateAuthority::Make(name, now_ - absl::Hours(48), now_ + absl::Hours(2400));
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  }
  CertificateRequest Request(Roles roles, const std::string& name) const {
    return {roles, name, {"localhost", "127.0.0.1"}, now_ - absl::Hours(1), now_ + absl::Hours(24)};
  }
  static IssuedCertificate Issue(const CertificateAuthority& authority, const CertificateRequest& request) {
    auto issued = authority.Issue(request);
    EXPECT_TRUE(issued.ok()) << issued.status();
    return *std::move(issued);
  }
  // The files of one member in a folder of its own, as an operator lays them down.
  CredentialFiles Write(const std::string& folder, const CertificateAuthority& authority,
                        const IssuedCertificate& issued, const std::string& revoked = "") {
    const std::string at = directory_ / folder;
    ::mkdir(at.c_str(), 0700);
    EXPECT_TRUE(ReplaceFile(at + "/ca.pem", authority.CertificatePem(), 0644).ok());
    EXPECT_TRUE(ReplaceFile(at + "/certificate.pem", issued.certificate_pem, 0644).ok());
    EXPECT_TRUE(ReplaceFile(at + "/key.pem", issued.key_pem, 0600).ok());
    if (!revoked.empty()) {
      EXPECT_TRUE(ReplaceFile(at + "/revoked.pem", revoked, 0644).ok());
    }
    return CredentialFiles::InFolder(at);
  }
  std::shared_ptr<Credentials> Load(const CredentialFiles& files) {
    auto loaded = Credentials::Load(files);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return loaded.ok() ? *std::move(loaded) : nullptr;
  }

  test::TemporaryDirectory directory_;
};

// A context that shows `issued` and checks nothing, for certificates that Snapshot::Load would refuse to
// show.
ContextPtr Careless(const IssuedCertificate& issued, const SSL_METHOD* method) {
  ContextPtr context(SSL_CTX_new(method));
  auto certificates = ParseCertificates(issued.certificate_pem, "test");
  auto key = ParseKey(issued.key_pem, "test");
  EXPECT_EQ(SSL_CTX_use_certificate(context.get(), certificates->front().get()), 1);
  EXPECT_EQ(SSL_CTX_use_PrivateKey(context.get(), key->get()), 1);
  return context;
}

struct Handshake {
  SslPtr server, client;
  absl::Status server_status, client_status;
};

// A whole handshake in memory. In TLS 1.3 a client learns at its first read that the server refused it.
Handshake Shake(SSL_CTX* server, SSL_CTX* client, const std::string& host = "localhost") {
  Handshake done{SslPtr(SSL_new(server)), SslPtr(SSL_new(client)), {}, {}};
  BIO *left = nullptr, *right = nullptr;
  EXPECT_EQ(BIO_new_bio_pair(&left, 0, &right, 0), 1);
  SSL_set_bio(done.server.get(), left, left);
  SSL_set_bio(done.client.get(), right, right);
  SSL_set_accept_state(done.server.get());
  SSL_set_connect_state(done.client.get());
  EXPECT_TRUE(ExpectHost(done.client.get(), host).ok());
  const auto step = [](SSL* one, absl::Status& status, std::string_view peer) {
    if (!status.ok()) return;
    ERR_clear_error();
    char byte;
    const int result = SSL_is_init_finished(one) ? SSL_read(one, &byte, 1) : SSL_do_handshake(one);
    const int error = SSL_get_error(one, result);
    if (result <= 0 && error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE)
      status = HandshakeFailure(one, peer);
  };
  for (int round = 0; round < 20; ++round) {
    step(done.client.get(), done.client_status, "manager:7400");
    step(done.server.get(), done.server_status, "10.0.0.9:5000");
  }
  return done;
}

TEST_F(CredentialsTest, PeersLearnWhoTheOtherIs) {
  const auto manager =
      Load(Write("m", authority_, Issue(authority_, Request({Role::kManager, Role::kGateway}, "head"))));
  const auto node = Load(Write("n", authority_, Issue(authority_, Request({Role::kNode}, "rack-3"))));
  const auto done = Shake(manager->Current()->server_context(), node->Current()->client_context());
  ASSERT_TRUE(done.server_status.ok()) << done.server_status;
  ASSERT_TRUE(done.client_status.ok()) << done.client_status;
  const auto seen = PeerIdentity(done.server.get());
  ASSERT_TRUE(seen.ok()) << seen.status();
  EXPECT_EQ(*seen, node->Current()->identity());
  EXPECT_EQ(PeerIdentity(done.client.get())->roles, (Roles{Role::kManager, Role::kGateway}));
  EXPECT_STREQ(SSL_get_version(done.server.get()), "TLSv1.3");
  EXPECT_FALSE(RequireRole(*seen, {Role::kAdmin}, "deploy").ok());
}

TEST_F(CredentialsTest, AnExpiredCertificateIsNamedWithItsEnd) {
  const auto manager = Load(Write("m", authority_, Issue(authority_, Request({Role::kManager}, "head"))));
  auto request = Request({Role::kNode}, "old-node");
  request.not_after = now_ - absl::Seconds(30);
  const auto old = Issue(authority_, request);
  const auto done = Shake(manager->Current()->server_context(), Careless(old, TLS_client_method()).get());
  EXPECT_THAT(done.server_status.message(),
              AllOf(HasSubstr("10.0.0.9:5000: certificate 'old-node' (node, serial " + old.serial),
                    HasSubstr("expired since " + TimeText(request.not_after)), HasSubstr("troupe ca renew")));
  EXPECT_THAT(done.client_status.message(), HasSubstr("it takes our certificate for expired"));
  EXPECT_THAT(Credentials::Load(Write("o", authority_, old)).status().message(),
              HasSubstr("is expired since"));
}

TEST_F(CredentialsTest, ACertificateOfTomorrowIsRefused) {
  const auto manager = Load(Write("m", authority_, Issue(authority_, Request({Role::kManager}, "head"))));
  auto request = Request({Role::kNode}, "early");
  request.not_before = now_ + absl::Hours(1);
  const auto done = Shake(manager->Current()->server_context(),
                          Careless(Issue(authority_, request), TLS_client_method()).get());
  EXPECT_THAT(done.server_status.message(),
              AllOf(HasSubstr("'early'"), HasSubstr("is not valid before"), HasSubstr("clocks")));
}

TEST_F(CredentialsTest, AMemberMayHaveTheAuthoritysName) {
  const auto issued = Issue(authority_, Request({Role::kNode}, "troupe"));
  const auto loaded = Credentials::Load(Write("member", authority_, issued));
  EXPECT_TRUE(loaded.ok()) << loaded.status();
}

TEST_F(CredentialsTest, ACertificateOfAnotherAuthorityIsRefused) {
  const auto manager = Load(Write("m", authority_, Issue(authority_, Request({Role::kManager}, "head"))));
  const auto other = MakeAuthority("troupe");  // an authority of the same name with another key
  const auto node = Load(Write("n", other, Issue(other, Request({Role::kNode}, "stranger"))));
  const auto done = Shake(manager->Current()->server_context(), node->Current()->client_context());
  EXPECT_THAT(done.client_status.message(),
              AllOf(HasSubstr("'head'"), HasSubstr("unknown certificate authority")));
  EXPECT_THAT(done.server_status.message(),
              HasSubstr("it does not know the certificate authority of our certificate"));
}

TEST_F(CredentialsTest, AServerForAnotherHostIsRefused) {
  const auto manager = Load(Write("m", authority_, Issue(authority_, Request({Role::kManager}, "head"))));
  const auto node = Load(Write("n", authority_, Issue(authority_, Request({Role::kNode}, "rack-3"))));
  for (const std::string host : {"elsewhere.example", "10.1.2.3"}) {
    const auto done = Shake(manager->Current()->server_context(), node->Current()->client_context(), host);
    EXPECT_THAT(done.client_status.message(),
                AllOf(HasSubstr("is for localhost, 127.0.0.1 and not for the host '" + host + "'"),
                      HasSubstr("--host " + host)));
  }
  EXPECT_TRUE(Shake(manager->Current()->server_context(), node->Current()->client_context(), "127.0.0.1")
                  .client_status.ok());
}

TEST_F(CredentialsTest, ARevokedCertificateIsRefusedAfterAReload) {
  const auto issued = Issue(authority_, Request({Role::kNode}, "lost"));
  const auto head = Issue(authority_, Request({Role::kManager}, "head"));
  const auto nothing = *authority_.RevocationList({}, now_ - absl::Minutes(5));
  const auto manager = Load(Write("m", authority_, head, nothing));
  const auto node = Load(Write("n", authority_, issued));
  auto done = Shake(manager->Current()->server_context(), node->Current()->client_context());
  ASSERT_TRUE(done.server_status.ok()) << done.server_status;
  X509* peer = SSL_get0_peer_certificate(done.server.get());
  EXPECT_TRUE(manager->Current()->CheckPeer(peer, {}).ok());

  const std::vector<Revocation> lost = {{issued.serial, absl::FromTimeT(absl::ToTimeT(now_))}};
  const auto list = authority_.RevocationList(lost, now_ - absl::Minutes(1));
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_EQ(*authority_.ReadRevocationList(*list), lost);
  EXPECT_FALSE(MakeAuthority("troupe").ReadRevocationList(*list).ok());
  Write("m", authority_, head, *list);
  const auto reloaded = manager->Reload();
  ASSERT_TRUE(reloaded.ok()) << reloaded.status();
  EXPECT_TRUE(*reloaded);
  EXPECT_THAT(manager->Current()->CheckPeer(peer, {}).message(), HasSubstr("is revoked"));
  const auto refused = Shake(manager->Current()->server_context(), node->Current()->client_context());
  EXPECT_THAT(refused.server_status.message(),
              AllOf(HasSubstr("'lost' (node, serial " + issued.serial), HasSubstr("is revoked")));
  EXPECT_THAT(refused.client_status.message(), HasSubstr("our certificate is revoked there"));
}

TEST_F(CredentialsTest, AListThatComesLaterCountsAndMayNotGoAway) {
  const auto issued = Issue(authority_, Request({Role::kNode}, "lost"));
  const auto head = Issue(authority_, Request({Role::kManager}, "head"));
  const auto files = Write("m", authority_, head);
  const auto manager = Load(files);
  const auto node = Load(Write("n", authority_, issued));
  EXPECT_TRUE(
      Shake(manager->Current()->server_context(), node->Current()->client_context()).server_status.ok());
  Write("m", authority_, head, *authority_.RevocationList({{{issued.serial, now_}}}, now_));
  EXPECT_TRUE(*manager->Reload());
  EXPECT_FALSE(
      Shake(manager->Current()->server_context(), node->Current()->client_context()).server_status.ok());
  ASSERT_EQ(::unlink(files.revocations.c_str()), 0);
  EXPECT_THAT(manager->Reload().status().message(), HasSubstr("is not there any more"));
  EXPECT_THAT(manager->Reload(true).status().message(), HasSubstr("is not there any more"));
  EXPECT_FALSE(
      Shake(manager->Current()->server_context(), node->Current()->client_context()).server_status.ok());
}

TEST_F(CredentialsTest, ACertificateThatEndsDoesNotEndItsConnection) {
  const auto manager = Load(Write("m", authority_, Issue(authority_, Request({Role::kManager}, "head"))));
  auto request = Request({Role::kNode}, "old-node");
  request.not_after = now_ - absl::Seconds(30);
  const auto old = ParseCertificates(Issue(authority_, request).certificate_pem, "test");
  EXPECT_TRUE(manager->Current()->CheckPeer(old->front().get(), {}).ok());
  const auto strange =
      ParseCertificates(Issue(MakeAuthority("troupe"), Request({Role::kNode}, "x")).certificate_pem, "test");
  EXPECT_FALSE(manager->Current()->CheckPeer(strange->front().get(), {}).ok());
}

TEST_F(CredentialsTest, AnAdminCannotListenAndAClientNeedsACertificate) {
  const auto admin = Load(Write("a", authority_, Issue(authority_, Request({Role::kAdmin}, "ann"))));
  const auto node = Load(Write("n", authority_, Issue(authority_, Request({Role::kNode}, "rack-3"))));
  const auto done = Shake(admin->Current()->server_context(), node->Current()->client_context());
  EXPECT_THAT(done.client_status.message(),
              AllOf(HasSubstr("'ann'"), HasSubstr("admins and readers only dial")));
  const ContextPtr bare(SSL_CTX_new(TLS_client_method()));
  EXPECT_THAT(Shake(node->Current()->server_context(), bare.get()).server_status.message(),
              HasSubstr("it has shown no certificate"));
}

TEST_F(CredentialsTest, AKeyOfAnotherCertificateIsRefused) {
  auto mixed = Issue(authority_, Request({Role::kNode}, "rack-3"));
  mixed.key_pem = Issue(authority_, Request({Role::kNode}, "rack-4")).key_pem;
  EXPECT_THAT(Credentials::Load(Write("n", authority_, mixed)).status().message(),
              HasSubstr("does not belong to the certificate 'rack-3'"));
}

TEST_F(CredentialsTest, FilesThatCannotBeUsedAreNamed) {
  const auto files = Write("n", authority_, Issue(authority_, Request({Role::kNode}, "rack-3")));
  ASSERT_EQ(::chmod(files.key.c_str(), 0640), 0);
  EXPECT_THAT(Credentials::Load(files).status().message(),
              AllOf(HasSubstr("mode 0640"), HasSubstr("chmod 600 " + files.key)));
  ASSERT_EQ(::chmod(files.key.c_str(), 0600), 0);
  auto missing = files;
  missing.authority += "x";
  EXPECT_THAT(Credentials::Load(missing).status().message(),
              AllOf(HasSubstr(missing.authority), HasSubstr("No such file")));
  ASSERT_TRUE(
      ReplaceFile(files.certificate, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", 0644)
          .ok());
  EXPECT_THAT(Credentials::Load(files).status().message(),
              HasSubstr(files.certificate + " does not hold a certificate"));
}

TEST_F(CredentialsTest, ABadNewSetLeavesTheOldOneAndIsReportedOnce) {
  const auto files = Write("n", authority_, Issue(authority_, Request({Role::kNode}, "rack-3")));
  const auto credentials = Load(files);
  EXPECT_FALSE(*credentials->Reload());
  const auto before = credentials->Current();
  ASSERT_TRUE(ReplaceFile(files.certificate, "nothing of use", 0644).ok());
  EXPECT_THAT(credentials->Reload().status().message(), HasSubstr("are refused and the old ones stay"));
  EXPECT_EQ(credentials->Current(), before);
  EXPECT_FALSE(*credentials->Reload());
  Write("n", authority_, Issue(authority_, Request({Role::kNode}, "rack-3")));
  EXPECT_TRUE(*credentials->Reload());
  EXPECT_NE(credentials->Current()->identity().serial, before->identity().serial);
}

TEST_F(CredentialsTest, TheAuthorityRefusesWhatItCannotStandFor) {
  auto request = Request({}, "x");
  EXPECT_FALSE(authority_.Issue(request).ok());
  request = Request({Role::kNode}, "x");
  request.hosts = {"good.example,URI:troupe://admin/x"};
  EXPECT_THAT(authority_.Issue(request).status().message(), HasSubstr("is not a host name"));
  request = Request({Role::kNode}, "x");
  request.not_after = now_ + absl::Hours(5000);
  EXPECT_THAT(authority_.Issue(request).status().message(), HasSubstr("after its authority"));
  EXPECT_TRUE(CertificateAuthority::FromPem(authority_.CertificatePem(), authority_.KeyPem()).ok());
  const auto node = Issue(authority_, Request({Role::kNode}, "x"));
  EXPECT_FALSE(CertificateAuthority::FromPem(node.certificate_pem, node.key_pem).ok());
}

}  // namespace
}  // namespace troupe::security
