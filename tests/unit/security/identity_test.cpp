#include "security/identity.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.hpp"

namespace troupe::security {
namespace {

using testing::HasSubstr;

TEST(Identity, SeveralRolesOfOneHolder) {
  const std::vector<std::string> uris = {"troupe://node/rack-3", "https://example.org/",
                                         "troupe://gateway/rack-3"};
  const auto identity = ParseIdentityUris(uris);
  ASSERT_TRUE(identity.ok()) << identity.status();
  EXPECT_EQ(identity->name, "rack-3");
  EXPECT_EQ(identity->roles, (Roles{Role::kNode, Role::kGateway}));
}

TEST(Identity, EveryRoleIsFormattedAndParsed) {
  for (const Role role : kAllRoles) {
    const std::vector<std::string> uris = {FormatIdentityUri(role, "a.b_c-9")};
    const auto identity = ParseIdentityUris(uris);
    ASSERT_TRUE(identity.ok()) << identity.status();
    EXPECT_EQ(identity->roles, Roles{role});
  }
}

TEST(Identity, MalformedUrisAreRefused) {
  for (const std::string uri :
       {"troupe://", "troupe://node", "troupe://node/", "troupe:///x", "troupe://root/x", "troupe://Node/x",
        "troupe://node/x/y", "troupe://node/x?y", "troupe://node/-x", "troupe://node/x y",
        "troupe://node/x\n", "troupe://node/%41"}) {
    Identity identity;
    EXPECT_FALSE(AddIdentityUri(uri, identity).ok()) << uri;
    EXPECT_EQ(identity, Identity{}) << uri;
  }
  Identity identity;
  EXPECT_FALSE(AddIdentityUri(std::string("troupe://node/x\0y", 17), identity).ok());
  EXPECT_FALSE(AddIdentityUri("troupe://node/" + std::string(64, 'x'), identity).ok());
  EXPECT_TRUE(AddIdentityUri("troupe://node/" + std::string(63, 'x'), identity).ok());
}

TEST(Identity, TwoHoldersInOneCertificateAreRefused) {
  const std::vector<std::string> uris = {"troupe://node/a", "troupe://gateway/b"};
  EXPECT_THAT(ParseIdentityUris(uris).status().message(), HasSubstr("two holders, 'a' and 'b'"));
}

TEST(Identity, WithoutAUriOfTroupeThereIsNone) {
  const std::vector<std::string> uris = {"https://example.org/"};
  EXPECT_THAT(ParseIdentityUris(uris).status().message(), HasSubstr("troupe ca issue"));
}

// An accepted name is formatted to the text that was read: an identity has only one spelling.
TEST(Identity, RandomUrisAreRefusedOrHaveOneSpelling) {
  Random random(7);
  const std::string letters = "troupe:/nodegatwymrx.-_%\n@ A9";
  int accepted = 0;
  for (int round = 0; round < 200000; ++round) {
    std::string uri = FormatIdentityUri(kAllRoles[random.Below(5)], "rack-3");
    for (auto changes = random.Below(4); changes > 0; --changes) {
      const char letter = letters[random.Below(letters.size())];
      if (random.Below(3) == 0)
        uri.insert(uri.begin() + static_cast<long>(random.Below(uri.size() + 1)), letter);
      else
        uri[random.Below(uri.size())] = letter;
    }
    Identity identity;
    if (!AddIdentityUri(uri, identity).ok()) continue;
    ++accepted;
    bool same = false;
    for (const Role role : kAllRoles)
      same = same || (identity.roles == Roles{role} && FormatIdentityUri(role, identity.name) == uri);
    EXPECT_TRUE(same) << uri;
  }
  EXPECT_GT(accepted, 1000);
}

TEST(Identity, AMissingRoleIsNamedWithWhatToDo) {
  const Identity identity{Roles{Role::kReader}, "ann", "01ff"};
  const auto status = RequireRole(identity, {Role::kNode}, "join as a node");
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(status.message(),
            "certificate 'ann' (reader, serial 01ff) may not join as a node: that needs the role node; issue "
            "one with "
            "'troupe ca issue --role node NAME'");
  EXPECT_TRUE(RequireRole(identity, {Role::kAdmin, Role::kReader}, "list functions").ok());
}

}  // namespace
}  // namespace troupe::security
