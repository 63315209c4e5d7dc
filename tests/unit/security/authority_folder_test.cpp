#include "security/authority_folder.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "security/credentials.hpp"
#include "security/pem_files.hpp"
#include "tests/temporary_directory.hpp"

namespace troupe::security {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class AuthorityFolderTest : public testing::Test {
 protected:
  test::TemporaryDirectory directory_;
  const absl::Time now_ = absl::FromUnixSeconds(absl::ToUnixSeconds(absl::Now()));
  const std::string ca_ = directory_ / "ca";

  AuthorityFolderTest() { EXPECT_TRUE(AuthorityFolder::Init(ca_, "test", now_, absl::Hours(2400)).ok()); }
  AuthorityFolder Open() const {
    auto opened = AuthorityFolder::Open(ca_);
    EXPECT_TRUE(opened.ok()) << opened.status();
    return *std::move(opened);
  }
  CertificateRequest Request(const std::string& name, Roles roles = {Role::kNode}) const {
    return {roles, name, {"node-1.example", "10.0.0.1"}, now_ - absl::Minutes(5), now_ + absl::Hours(24)};
  }
  static mode_t ModeOf(const std::string& path) {
    struct stat found {};
    EXPECT_EQ(::stat(path.c_str(), &found), 0) << path;
    return found.st_mode & 0777;
  }
};

TEST_F(AuthorityFolderTest, WhatItIssuesCanBeUsedAndIsPrivate) {
  const auto out = directory_ / "rack-3";
  const auto issued = Open().Issue(Request("rack-3", {Role::kNode, Role::kGateway}), out);
  ASSERT_TRUE(issued.ok()) << issued.status();
  const auto loaded = Snapshot::Load(CredentialFiles::InFolder(out));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ((*loaded)->identity(), issued->identity);
  EXPECT_EQ(ModeOf(ca_), 0700u);
  EXPECT_EQ(ModeOf(out), 0700u);
  EXPECT_EQ(ModeOf(ca_ + "/ca-key.pem"), 0600u);
  EXPECT_EQ(ModeOf(out + "/key.pem"), 0600u);
}

TEST_F(AuthorityFolderTest, WhatWasIssuedIsRemembered) {
  ASSERT_TRUE(Open().Issue(Request("a"), directory_ / "a").ok());
  ASSERT_TRUE(Open().Issue(Request("b", {Role::kManager, Role::kGateway}), directory_ / "b").ok());
  const auto again = Open();
  ASSERT_EQ(again.issued().size(), 2u);
  const auto& b = again.issued()[1];
  EXPECT_EQ(b.identity.name, "b");
  EXPECT_EQ(b.identity.roles, (Roles{Role::kManager, Role::kGateway}));
  EXPECT_THAT(b.hosts, testing::ElementsAre("node-1.example", "10.0.0.1"));
  EXPECT_EQ(b.not_after, now_ + absl::Hours(24));
  EXPECT_FALSE(b.is_revoked());
}

// A certificate that the authority hands out without recording it could not be revoked by name.
TEST_F(AuthorityFolderTest, NothingIsHandedOutThatIsNotRemembered) {
  ASSERT_EQ(::mkdir((ca_ + "/issued.tsv.new").c_str(), 0700), 0);  // so that it cannot be written
  const auto out = directory_ / "a";
  EXPECT_FALSE(Open().Issue(Request("a"), out).ok());
  EXPECT_NE(::access((out + "/certificate.pem").c_str(), F_OK), 0);
}

TEST_F(AuthorityFolderTest, RevokedByNameOrBySerialAndForGood) {
  const auto first = Open().Issue(Request("a"), directory_ / "a");
  const auto second = Open().Issue(Request("a"), directory_ / "a");
  const auto other = Open().Issue(Request("b"), directory_ / "b");
  ASSERT_TRUE(first.ok() && second.ok() && other.ok());
  EXPECT_EQ(Open().Revoke(second->identity.serial, now_)->size(), 1u);
  EXPECT_EQ(Open().Revoke("a", now_)->front().identity.serial, first->identity.serial);
  EXPECT_TRUE(Open().Revoke("a", now_)->empty()) << "the certificates are revoked already";
  EXPECT_THAT(Open().Revoke("c", now_).status().message(), HasSubstr("'c'"));
  const auto list = Open().issued();
  EXPECT_TRUE(list[0].is_revoked() && list[1].is_revoked());
  EXPECT_FALSE(list[2].is_revoked());
  // A certificate that is issued from now on comes with the present list of revocations.
  ASSERT_TRUE(Open().Issue(Request("c"), directory_ / "c").ok());
  const auto pem = ReadSmallFile(directory_ / "c/revoked.pem", Secrecy::kPublic);
  EXPECT_EQ(*pem, *ReadSmallFile(ca_ + "/revoked.pem", Secrecy::kPublic));
}

TEST_F(AuthorityFolderTest, ARenewedCertificateIsTheSameWithAnotherEnd) {
  const auto first = Open().Issue(Request("a"), directory_ / "a");
  const auto renewed = Open().Renew("a", now_, absl::Hours(100), directory_ / "a");
  ASSERT_TRUE(renewed.ok()) << renewed.status();
  EXPECT_EQ(renewed->identity.roles, first->identity.roles);
  EXPECT_EQ(renewed->hosts, first->hosts);
  EXPECT_NE(renewed->identity.serial, first->identity.serial);
  EXPECT_EQ(renewed->not_after, now_ + absl::Hours(100));
  ASSERT_TRUE(Open().Revoke("a", now_).ok());
  EXPECT_TRUE(absl::IsNotFound(Open().Renew("a", now_, absl::Hours(1), directory_ / "a").status()));
}

TEST_F(AuthorityFolderTest, RefusalsSayWhatToDo) {
  EXPECT_THAT(AuthorityFolder::Init(ca_, "test", now_, absl::Hours(1)).message(),
              HasSubstr("has a certificate authority already"));
  EXPECT_THAT(AuthorityFolder::Open(directory_ / "none").status().message(),
              AllOf(HasSubstr("troupe ca init"), HasSubstr("--ca")));
  ASSERT_TRUE(Open().Issue(Request("a"), directory_ / "a").ok());
  EXPECT_THAT(Open().Issue(Request("b"), directory_ / "a").status().message(),
              AllOf(HasSubstr("'a' (node"), HasSubstr("folder of its own")));
  EXPECT_FALSE(Open().Issue(Request("../up"), directory_ / "up").ok());
  const auto held = Open();
  EXPECT_THAT(AuthorityFolder::Open(ca_).status().message(), HasSubstr("another 'troupe ca' works"));
}

TEST_F(AuthorityFolderTest, ADamagedIndexOrListIsNamed) {
  ASSERT_TRUE(ReplaceFile(ca_ + "/issued.tsv", "nonsense\n", 0600).ok());
  EXPECT_THAT(AuthorityFolder::Open(ca_).status().message(), HasSubstr("issued.tsv"));
  const auto other = directory_ / "other";
  ASSERT_TRUE(AuthorityFolder::Init(other, "test", now_, absl::Hours(100)).ok());
  ASSERT_TRUE(
      ReplaceFile(other + "/revoked.pem", *ReadSmallFile(ca_ + "/revoked.pem", Secrecy::kPublic), 0644).ok());
  EXPECT_THAT(AuthorityFolder::Open(other).status().message(), HasSubstr("not signed by this authority"));
}

}  // namespace
}  // namespace troupe::security
