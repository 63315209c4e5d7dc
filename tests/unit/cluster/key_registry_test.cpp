#include "cluster/records/key_registry.hpp"

#include <gtest/gtest.h>

#include <string>

namespace troupe::cluster {
namespace {

TEST(KeyRegistry, ANameIsForOneKeyAndTheirNumberIsBounded) {
  KeyRegistry registry;
  proto::CreateApiKey command;
  command.mutable_key()->set_name("a");
  EXPECT_TRUE(registry.ValidateCreate("a").ok());
  EXPECT_TRUE(absl::IsNotFound(registry.ValidateRevoke("a")));
  registry.Apply(command);
  EXPECT_TRUE(registry.ValidateRevoke("a").ok());
  EXPECT_TRUE(absl::IsAlreadyExists(registry.ValidateCreate("a")));
  for (std::size_t i = 1; i < KeyRegistry::kMostKeys; ++i) {
    command.mutable_key()->set_name("k" + std::to_string(i));
    registry.Apply(command);
  }
  EXPECT_TRUE(absl::IsResourceExhausted(registry.ValidateCreate("z")));
}

}  // namespace
}  // namespace troupe::cluster
