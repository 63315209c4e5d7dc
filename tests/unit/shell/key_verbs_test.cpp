// The verbs of API keys.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/shell/fake_admin_client.hpp"

namespace troupe::shell {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Request = proto::AdminRequest;

proto::AdminReply OneKey() {
  proto::AdminReply reply;
  auto& key = *reply.add_keys();
  key.set_name("ci");
  key.add_scopes(proto::KEY_SCOPE_INFER);
  key.add_scopes(proto::KEY_SCOPE_DEPLOY);
  return reply;
}

TEST(KeyVerbs, TheKeyAloneIsOnStandardOutput) {
  Harness troupe;
  auto reply = OneKey();
  reply.set_secret("troupe_0123");
  troupe.cluster.Answer(Request::kCreateKey, reply);
  EXPECT_EQ(troupe.Run("key create ci --scope infer,deploy --scope read"), ExitCode::kOk);
  const auto& create = troupe.cluster.asked.at(0).create_key();
  EXPECT_EQ(create.name(), "ci");
  EXPECT_THAT(create.scopes(),
              ElementsAre(proto::KEY_SCOPE_INFER, proto::KEY_SCOPE_DEPLOY, proto::KEY_SCOPE_READ));
  EXPECT_EQ(troupe.out(), "troupe_0123\n");
  EXPECT_THAT(troupe.err(), HasSubstr("shown this once"));
}

TEST(KeyVerbs, AWrongScopeIsNotSent) {
  Harness troupe;
  for (const std::string scope : {"root", "infer,", "infer;read", "INFER"}) {
    EXPECT_EQ(troupe.Run("key create ci --scope " + scope), ExitCode::kUsage) << scope;
    EXPECT_THAT(troupe.err(), HasSubstr("infer, deploy, admin and read")) << scope;
  }
  EXPECT_EQ(troupe.Run("key create ci"), ExitCode::kUsage);
  EXPECT_TRUE(troupe.cluster.asked.empty());
}

TEST(KeyVerbs, ListAndRevoke) {
  Harness troupe;
  EXPECT_EQ(troupe.Run("key list"), ExitCode::kOk);
  EXPECT_THAT(troupe.out(), HasSubstr("troupe key create NAME"));
  troupe.cluster.Answer(Request::kListKeys, OneKey());
  EXPECT_EQ(troupe.Run("key list"), ExitCode::kOk);
  EXPECT_THAT(troupe.out(), HasSubstr("ci"));
  EXPECT_THAT(troupe.out(), HasSubstr("infer,deploy"));
  troupe.cluster.Answer(Request::kRevokeKey, absl::NotFoundError("there is no key 'x'"));
  EXPECT_NE(troupe.Run("key revoke x"), ExitCode::kOk);
  EXPECT_THAT(troupe.err(), HasSubstr("there is no key 'x'"));
  EXPECT_EQ(troupe.cluster.asked.back().revoke_key().name(), "x");
}

}  // namespace
}  // namespace troupe::shell
