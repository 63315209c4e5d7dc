#include "gpu/memory/memory_policy.hpp"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace troupe::gpu {
namespace {

TEST(MemoryPolicy, NamesAreFoundAndUnknownOnesListWhatThereIs) {
  std::set<std::string_view> names;
  for (const auto& entry : MemoryPolicies()) {
    EXPECT_TRUE(names.insert(entry.name).second) << entry.name;
    EXPECT_TRUE(FindMemoryPolicy(entry.name).ok());
  }
  EXPECT_THAT(names, testing::UnorderedElementsAre("static", "fine", "fine-resilient", "block-cache",
                                                   "device-malloc"));
  EXPECT_EQ(FindMemoryPolicy("")->pool, MemoryPolicy::Pool::kPredicted);
  const absl::Status unknown = FindMemoryPolicy("slab").status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(unknown.message(), testing::HasSubstr("fine-resilient"));
}

}  // namespace
}  // namespace troupe::gpu
