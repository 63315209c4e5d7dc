#include "security/api_keys.hpp"

#include <gtest/gtest.h>

#include <set>

namespace troupe::security {
namespace {

proto::CreateApiKey Command(const std::string& name, const std::string& text,
                            std::initializer_list<proto::KeyScope> scopes) {
  proto::CreateApiKey command;
  command.mutable_key()->set_name(name);
  command.mutable_key()->set_sha256(DigestOfKey(text));
  for (const auto scope : scopes) command.mutable_key()->add_scopes(scope);
  return command;
}

TEST(ApiKeys, ANewKeyHas256RandomBits) {
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    const auto text = NewApiKey();
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(text->size(), kKeyLength);
    EXPECT_EQ(text->find_first_not_of("0123456789abcdef", kKeyPrefix.size()), std::string::npos);
    EXPECT_TRUE(text->starts_with("troupe_"));
    seen.insert(*text);
  }
  EXPECT_EQ(seen.size(), 100U);
}

TEST(ApiKeys, AKeyIsFoundByItsTextAlone) {
  const auto text = NewApiKey().value();
  ApiKeyTable table;
  table.Apply(Command("other", NewApiKey().value(), {proto::KEY_SCOPE_READ}));
  table.Apply(Command("mine", text, {proto::KEY_SCOPE_INFER}));
  ASSERT_NE(table.Find(text), nullptr);
  EXPECT_EQ(table.Find(text)->name(), "mine");
  std::string altered = text;
  altered.back() = altered.back() == '0' ? '1' : '0';
  for (const std::string& wrong :
       {altered, text + "0", text.substr(1), text.substr(0, text.size() - 1), std::string(),
        DigestOfKey(text), std::string("mine"), std::string(kKeyLength, '\0')})
    EXPECT_EQ(table.Find(wrong), nullptr) << wrong;
  proto::RevokeApiKey revoke;
  revoke.set_name("mine");
  table.Apply(revoke);
  EXPECT_EQ(table.Find(text), nullptr);
  EXPECT_EQ(table.keys().size(), 1U);
}

TEST(ApiKeys, AdminIncludesTheOtherScopesAndNoOtherScopeDoes) {
  constexpr proto::KeyScope kAll[] = {proto::KEY_SCOPE_INFER, proto::KEY_SCOPE_DEPLOY, proto::KEY_SCOPE_ADMIN,
                                      proto::KEY_SCOPE_READ};
  for (const auto held : kAll) {
    const auto key = Command("k", "t", {held}).key();
    for (const auto wanted : kAll)
      EXPECT_EQ(Allows(key, wanted), held == wanted || held == proto::KEY_SCOPE_ADMIN)
          << ScopeName(held) << " " << ScopeName(wanted);
    EXPECT_EQ(ParseScope(ScopeName(held)).value(), held);
  }
  EXPECT_FALSE(Allows(proto::ApiKeyRecord(), proto::KEY_SCOPE_READ));
  for (const std::string_view wrong : {"", "INFER", "infer ", "unknown", "root"})
    EXPECT_TRUE(absl::IsInvalidArgument(ParseScope(wrong).status())) << wrong;
}

TEST(ApiKeys, WhatCannotBeKeptIsRefused) {
  const auto good = Command("a", "t", {proto::KEY_SCOPE_READ});
  EXPECT_TRUE(CheckKey(good.key()).ok());
  for (const std::string name : {"", "-a", "a b", "a/b", "a\n"}) {
    auto key = good.key();
    key.set_name(name);
    EXPECT_TRUE(absl::IsInvalidArgument(CheckKey(key))) << name;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(CheckKey(Command("a", "t", {}).key())));
  EXPECT_TRUE(absl::IsInvalidArgument(CheckKey(Command("a", "t", {static_cast<proto::KeyScope>(9)}).key())));
  auto short_digest = good.key();
  short_digest.set_sha256("abc");
  EXPECT_TRUE(absl::IsInvalidArgument(CheckKey(short_digest)));
}

}  // namespace
}  // namespace troupe::security
