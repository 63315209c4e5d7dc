#include "sim/checkers/tensor_check.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::sim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(TensorCheck, WhatIsLeftIsNamed) {
  EXPECT_THAT(CheckTensors({{.where = "node-1"}, {.where = "node-1 GPU 0"}}), IsEmpty());
  EXPECT_THAT(
      CheckTensors({{.where = "node-1", .bytes = 16}, {.where = "node-1 GPU 0", .tensors = 2}}),
      ElementsAre(HasSubstr("node-1 has 16 bytes in its arena"), HasSubstr("node-1 GPU 0 keeps 2 tensors")));
}

TEST(TensorCheck, AStepIsOnlyKeptWhenSomeOutputIsNowhereElse) {
  proto::CommitStep step;
  EXPECT_FALSE(OnlyKept(step));
  step.add_outputs()->set_inlined("bytes");
  EXPECT_FALSE(OnlyKept(step));
  step.add_outputs()->mutable_kept()->set_number(3);
  EXPECT_TRUE(OnlyKept(step));
}

}  // namespace
}  // namespace troupe::sim
