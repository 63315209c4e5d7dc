// Verbs of the certificate authority, which ask no cluster.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "security/credentials.hpp"
#include "tests/temporary_directory.hpp"
#include "tests/unit/shell/fake_admin_client.hpp"

namespace troupe::shell {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class CaVerbs : public testing::Test {
 protected:
  ExitCode Run(const std::string& line) { return troupe_.Run(line); }
  [[nodiscard]] std::string Folder(const std::string& name) const { return directory_ / name; }
  [[nodiscard]] std::string Issue(const std::string& words, const std::string& out) const {
    return "ca issue " + words + " --out " + Folder(out) + " --ca " + Folder("ca");
  }
  static std::string SerialIn(const std::string& folder) {
    const auto loaded = security::Snapshot::Load(security::CredentialFiles::InFolder(folder));
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return loaded.ok() ? (*loaded)->identity().serial : "";
  }

  test::TemporaryDirectory directory_;
  Harness troupe_;
};

TEST_F(CaVerbs, FromTheAuthorityToACertificateThatIsRevoked) {
  const auto ca = " --ca " + Folder("ca");
  ASSERT_EQ(Run("ca init " + Folder("ca")), ExitCode::kOk) << troupe_.err();
  EXPECT_EQ(Run("ca list" + ca), ExitCode::kOk);
  EXPECT_THAT(troupe_.out(), HasSubstr("troupe ca issue"));
  ASSERT_EQ(Run(Issue("--role node --role gateway rack-3 --host 10.0.0.9 --host rack-3.example", "n")),
            ExitCode::kOk)
      << troupe_.err();
  const auto serial = SerialIn(Folder("n"));
  EXPECT_THAT(troupe_.out(),
              AllOf(HasSubstr("'rack-3' (gateway, node, serial " + serial), HasSubstr("--tls-dir")));
  EXPECT_EQ(Run("ca list" + ca), ExitCode::kOk);
  EXPECT_THAT(troupe_.out(), AllOf(HasSubstr("rack-3"), HasSubstr("good"),
                                   HasSubstr("10.0.0.9,rack-3.example"), HasSubstr(serial)));
  ASSERT_EQ(Run("ca renew rack-3 --out " + Folder("n") + ca), ExitCode::kOk) << troupe_.err();
  EXPECT_NE(SerialIn(Folder("n")), serial);
  ASSERT_EQ(Run("ca revoke " + serial + ca), ExitCode::kOk);
  EXPECT_THAT(troupe_.out(), AllOf(HasSubstr("revoked 'rack-3'"), HasSubstr("revoked.pem")));
  EXPECT_EQ(Run("ca list" + ca), ExitCode::kOk);
  EXPECT_THAT(troupe_.out(), AllOf(HasSubstr("revoked"), HasSubstr("good")));
  EXPECT_EQ(troupe_.cluster.clients, 0);
}

TEST_F(CaVerbs, WhatIsWrongIsSaid) {
  EXPECT_NE(Run("ca list --ca " + Folder("none")), ExitCode::kOk);
  EXPECT_THAT(troupe_.err(), HasSubstr("troupe ca init"));
  ASSERT_EQ(Run("ca init " + Folder("ca")), ExitCode::kOk);
  EXPECT_NE(Run("ca init " + Folder("ca")), ExitCode::kOk);
  for (const auto& [words, why] :
       {std::pair<std::string, std::string>{"--role king x --host h", "not a role"},
        {"--role node x", "--host"},
        {"--role node ../x --host h", "not a valid name"},
        {"--role node x --host a_b", "not a host name"},
        {"--role node x --host h --days 0", "--days"},
        {"--role node x --host h --days 36000", "after its authority"}}) {
    EXPECT_EQ(Run(Issue(words, "x")), ExitCode::kUsage) << words;
    EXPECT_THAT(troupe_.err(), HasSubstr(why)) << words;
  }
  EXPECT_EQ(Run(Issue("--role admin ann", "ann")), ExitCode::kOk) << "a member that only dials needs no host";
  EXPECT_NE(Run("ca revoke bob --ca " + Folder("ca")), ExitCode::kOk);
  EXPECT_THAT(troupe_.err(), HasSubstr("'bob'"));
}

}  // namespace
}  // namespace troupe::shell
