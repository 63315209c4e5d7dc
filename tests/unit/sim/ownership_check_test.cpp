#include "sim/checkers/ownership_check.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::sim {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class OwnershipCheck : public ::testing::Test {
 protected:
  OwnershipCheck() {
    function_.mutable_key()->set_name("f");
    function_.mutable_sharing()->set_sm_partition(50);
    function_.mutable_sharing()->set_quota_request(30);
    auto& place = *function_.add_places();
    place.set_node("n");
    place.set_gpu(1);
    place.set_quota(30);
    place.set_sms(50);
    node_.set_node("n");
    auto& owned = *node_.add_owned();
    owned.set_function("f");
    owned.set_gpu(1);
    owned.set_instances(1);
  }
  [[nodiscard]] std::vector<std::string> Check() const { return CheckOwnership({function_}, {node_}); }

  proto::FunctionRecord function_;
  proto::NodeDescription node_;
};

TEST_F(OwnershipCheck, WhatIsListedAndObeyedIsRight) {
  EXPECT_THAT(Check(), IsEmpty());
}

TEST_F(OwnershipCheck, APartOfAnotherSizeOrBeyondTheGpuIsWrong) {
  function_.mutable_places(0)->set_sms(40);
  EXPECT_THAT(Check(), Contains(HasSubstr("not of the size that it requests")));
  function_.mutable_places(0)->set_sms(50);
  function_.mutable_places(0)->set_bottom(60);
  EXPECT_THAT(Check(), Contains(HasSubstr("beyond the GPU")));
}

TEST_F(OwnershipCheck, PartsOfAFunctionThatFollowsItsLoadMayDiffer) {
  function_.mutable_sharing()->add_automatic("quota_request");
  *function_.add_places() = function_.places(0);
  function_.mutable_places(1)->set_left(30);
  function_.mutable_places(1)->set_quota(45);
  node_.mutable_owned(0)->set_instances(2);
  EXPECT_THAT(Check(), Contains(HasSubstr("not of the size"))) << "the request is not their mean";
  function_.mutable_sharing()->set_quota_request(38);
  EXPECT_THAT(Check(), IsEmpty());
  function_.mutable_sharing()->set_quota_limit(40);
  EXPECT_THAT(Check(), Contains(HasSubstr("not of the size")));
}

TEST_F(OwnershipCheck, MorePartsThanInstancesAreWrong) {
  *function_.add_places() = function_.places(0);
  function_.mutable_places(1)->set_left(30);
  node_.mutable_owned(0)->set_instances(2);
  EXPECT_THAT(Check(), Contains(HasSubstr("more than instances")));
}

TEST_F(OwnershipCheck, PartsOfTwoFunctionsDoNotOverlap) {
  auto other = function_;
  other.mutable_key()->set_name("g");
  auto node = node_;
  *node.add_owned() = node_.owned(0);
  node.mutable_owned(1)->set_function("g");
  EXPECT_THAT(CheckOwnership({function_, other}, {node}), Contains(HasSubstr("overlap")));
  other.mutable_places(0)->set_bottom(50);
  EXPECT_THAT(CheckOwnership({function_, other}, {node}), IsEmpty());
}

TEST_F(OwnershipCheck, ANodeThatIsGoneOrDisobeysIsWrong) {
  EXPECT_THAT(CheckOwnership({function_}, {}), Contains(HasSubstr("the node is not there")));
  node_.mutable_owned(0)->set_gpu(0);
  EXPECT_THAT(Check(), Contains(HasSubstr("the node obeys 0")));
  EXPECT_THAT(Check(), Contains(HasSubstr("owns nothing, and the node obeys 1")));
}

}  // namespace
}  // namespace troupe::sim
