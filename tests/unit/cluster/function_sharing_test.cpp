#include "cluster/function_sharing.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/digest.hpp"
#include "cluster/cluster_view.hpp"
#include "cluster/function_registry.hpp"
#include "proto/gpu_sharing.hpp"

namespace troupe::cluster::function_sharing_test {
namespace {

using testing::HasSubstr;

proto::TensorSpec Spec(const char* name, std::vector<std::int64_t> shape) {
  proto::TensorSpec spec;
  spec.set_name(name);
  spec.set_type(proto::FP32);
  *spec.mutable_shape() = {shape.begin(), shape.end()};
  return spec;
}

// Weights of 1 MiB, an input and an output with open leading dimensions.
proto::FunctionRecord Record() {
  proto::FunctionRecord record;
  record.mutable_key()->set_name("f");
  record.set_onnx_digest(Sha256Hex("onnx"));
  record.set_model_digest(Sha256Hex("model"));
  record.set_weights_bytes(1 << 20);
  *record.add_inputs() = Spec("x", {-1, 4});
  *record.add_outputs() = Spec("y", {-1, 2});
  return record;
}

proto::FunctionRecord Fixed() {
  auto record = Record();
  record.mutable_inputs(0)->set_shape(0, 1);
  return record;
}

proto::FunctionRecord FixedOutput() {
  auto record = Record();
  record.mutable_outputs(0)->set_shape(0, 1);
  return record;
}

// Keeps 64 bytes of state.
proto::FunctionRecord WithState() {
  auto record = Record();
  *record.add_inputs() = Spec("past", {2, 8});
  *record.add_outputs() = Spec("present", {2, 8});
  auto& state = *record.add_state();
  state.set_input("past");
  state.set_output("present");
  return record;
}

// "sm_partition=24 max_instances=8"
proto::GpuSharing Sharing(std::vector<std::pair<const char*, std::uint64_t>> settings) {
  proto::GpuSharing sharing;
  for (const auto& [name, value] : settings) proto::FindSharingField(name)->set(sharing, value);
  return sharing;
}

struct Case {
  proto::FunctionRecord record;
  proto::GpuSharing sharing;
  const char* refused;  // a part of the message; "": it is allowed
};

const std::vector<Case>& Cases() {
  static const std::vector<Case> kCases = {
      {Record(), {}, ""},
      {Record(),
       Sharing({{"sm_partition", 100}, {"quota_request", 100}, {"quota_limit", 100}, {"max_instances", 1}}),
       ""},
      {Record(), Sharing({{"sm_partition", 101}}), "sm_partition is 101 %; give 1 to 100 percent, or 'all'"},
      {Record(), Sharing({{"quota_request", 101}}),
       "quota_request is 101 %; give 1 to 100 percent, or 'none'"},
      {Record(), Sharing({{"quota_limit", 4'000'000'000}}), "quota_limit is 4000000000 %"},
      {Record(), Sharing({{"quota_request", 30}, {"quota_limit", 30}}), ""},
      {Record(), Sharing({{"quota_request", 30}}), ""},
      {Record(), Sharing({{"quota_request", 31}, {"quota_limit", 30}}),
       "quota_request is 31 % and quota_limit 30 %, so more of a window would be promised than may be taken; give a "
       "request of 30 % at most, or a limit of 31 % at least"},
      {Record(), Sharing({{"gpu_mem", 1 << 20}}), ""},
      {Record(), Sharing({{"gpu_mem", (1 << 20) - 1}}),
       "gpu_mem is 1024 KiB (1048575 bytes), and the model's weights take 1 MiB (1048576 bytes); give more than that"},
      {WithState(), Sharing({{"gpu_mem", 1 << 20}}),
       "the model's weights and the function's state take 1 MiB (1048640 bytes)"},
      {Record(), Sharing({{"max_instances", 16}}), ""},
      {Record(), Sharing({{"max_instances", 17}}), "max_instances is 17; give 1 to 16, or 'auto'"},
      {Record(), Sharing({{"sm_partition", 12}, {"max_instances", 8}}), ""},
      {Record(), Sharing({{"sm_partition", 13}, {"max_instances", 8}}),
       "max_instances is 8, and so many runs of an sm_partition of 13 % take 104 % of a GPU's SMs; give 7 instances at "
       "most, or an sm_partition of 12 % at most"},
      {Record(), Sharing({{"max_batch", 128}}), ""},
      {Record(), Sharing({{"max_batch", 129}}), "max_batch is 129; give 1 to 128, or 'default', or 'auto'"},
      {Fixed(), Sharing({{"max_batch", 1}}), ""},
      {Fixed(), Sharing({{"max_batch", 2}}),
       "max_batch is 2, and one run of function 'f' cannot answer several requests: its input 'x' has the shape [1, 4], "
       "whose leading dimension is not open; give 1 or 'auto', or export the model with an open leading dimension"},
      {FixedOutput(), Sharing({{"max_batch", 2}}), "its output 'y' has the shape [1, 2]"},
      {WithState(), Sharing({{"max_batch", 4}}),
       "it keeps state, and a run goes on from the state of the run before it"},
  };
  return kCases;
}

TEST(FunctionSharing, IsWhatTheSettingsAndTheModelAllow) {
  for (const auto& one : Cases()) {
    auto record = one.record;
    *record.mutable_sharing() = one.sharing;
    const auto status = ValidateSharing(record);
    if (*one.refused == '\0') {
      EXPECT_TRUE(status.ok()) << status;
      continue;
    }
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << one.refused;
    EXPECT_THAT(std::string(status.message()), HasSubstr(one.refused));
  }
}

TEST(FunctionSharing, TheLargestNumberOfInstancesThatIsNamedFits) {
  for (std::uint64_t share = 1; share <= 100; ++share) {
    const auto most = proto::InstancesOfShare(share);
    EXPECT_FALSE(proto::FaultIn(Sharing({{"sm_partition", share}, {"max_instances", most}}))) << share;
    EXPECT_TRUE(proto::FaultIn(Sharing({{"sm_partition", share}, {"max_instances", most + 1}}))) << share;
  }
}

// "name value source: reason"
std::vector<std::string> Applied(const proto::FunctionRecord& record) {
  std::vector<std::string> lines;
  for (const auto& setting : AppliedSettings(record))
    lines.push_back(setting.name() + " " + std::to_string(setting.value()) + " " +
                    proto::AppliedSetting::Source_Name(setting.source()) +
                    (setting.reason().empty() ? "" : ": " + setting.reason()));
  return lines;
}

TEST(FunctionSharing, EverySettingSaysWhereItComesFrom) {
  auto record = Record();
  EXPECT_THAT(Applied(record),
              testing::ElementsAre(
                  "sm_partition 100 DEFAULT: all SMs",
                  "quota_request 0 DEFAULT: no time is promised to it; it shares the time that others leave",
                  "quota_limit 100 DEFAULT: no limit", "gpu_mem 0 DEFAULT: no limit",
                  "max_instances 0 DEFAULT: as many as each node runs at a time",
                  "max_batch 0 DEFAULT: each node decides"));
  *record.mutable_sharing() = Sharing({{"sm_partition", 12}, {"quota_limit", 80}});
  EXPECT_EQ(Applied(record)[0], "sm_partition 12 DECLARED");
  EXPECT_EQ(Applied(record)[2], "quota_limit 80 DECLARED");
  EXPECT_EQ(Applied(record)[4], "max_instances 1 DEFAULT: with a quota it owns one part of the GPU");
  *record.mutable_sharing() = Sharing({{"sm_partition", 12}});
  record.mutable_sharing()->add_automatic("quota_request");
  EXPECT_EQ(Applied(record)[4], "max_instances 64 DEFAULT: in the cluster, as its load asks");
  *record.mutable_sharing() = Sharing({{"sm_partition", 12}});
  EXPECT_EQ(Applied(record)[4], "max_instances 8 DEFAULT: 100 % / 12 %");
  EXPECT_THAT(Applied(Fixed())[5], HasSubstr("max_batch 1 DEFAULT: its input 'x' has the shape [1, 4]"));
  EXPECT_THAT(Applied(WithState())[5], HasSubstr("max_batch 1 DEFAULT: it keeps state"));
}

// --- updates ---

proto::UpdateFunction Update(const proto::GpuSharing& sharing, std::vector<std::string> settings) {
  proto::UpdateFunction wish;
  wish.mutable_key()->set_name("f");
  *wish.mutable_sharing() = sharing;
  *wish.mutable_settings() = {settings.begin(), settings.end()};
  return wish;
}

class UpdateTest : public testing::Test {
 protected:
  UpdateTest() {
    for (int version = 1; version <= 2; ++version) {
      proto::DeployFunction wish;
      *wish.mutable_record() = Record();
      *wish.mutable_record()->mutable_sharing() = Sharing({{"sm_partition", 24}, {"quota_limit", 50}});
      registry.Apply(*registry.ValidateDeploy(wish), ++revision);
    }
  }
  std::string Refused(const proto::UpdateFunction& wish) {
    return std::string(registry.ValidateSharing(wish).status().message());
  }
  FunctionRegistry registry;
  Revision revision = 0;
};

TEST_F(UpdateTest, ReplacesWhatItNamesInTheNewestVersion) {
  const auto command = registry.ValidateSharing(
      Update(Sharing({{"quota_limit", 80}, {"max_instances", 2}}), {"quota_limit", "sm_partition"}));
  ASSERT_TRUE(command.ok()) << command.status();
  EXPECT_EQ(command->key().version(), "2");
  registry.Apply(*command, ++revision);
  EXPECT_EQ(DescribeSharing(registry.table().Find(command->key())->sharing()), "quota_limit 80%")
      << "the share is taken back, and the instances are not named";
  proto::FunctionKey first;
  first.set_name("f");
  first.set_version("1");
  EXPECT_EQ(DescribeSharing(registry.table().Find(first)->sharing()), "sm_partition 24%, quota_limit 50%");
}

TEST_F(UpdateTest, IsToldToMembersAsAChange) {
  ClusterView view;
  static_cast<void>(view.Apply(registry.ChangesSince(0)));
  auto wish = Update(Sharing({{"quota_limit", 80}}), {"quota_limit"});
  wish.mutable_key()->set_version("1");
  registry.Apply(*registry.ValidateSharing(wish), ++revision);
  const auto update = registry.ChangesSince(revision - 1);
  ASSERT_EQ(update.functions_size(), 1);
  static_cast<void>(view.Apply(update));
  const auto* known = view.functions().Find(wish.key());
  EXPECT_EQ(known->sharing().quota_limit(), 80u);
  EXPECT_EQ(known->sharing().sm_partition(), 24u);
  EXPECT_EQ(known->revision(), revision);
}

TEST_F(UpdateTest, IsRefusedByWhatTheVersionHas) {
  EXPECT_THAT(Refused(Update(Sharing({{"max_instances", 5}}), {"max_instances"})),
              HasSubstr("give 4 instances at most"));
  EXPECT_THAT(Refused(Update(Sharing({{"quota_request", 60}}), {"quota_request"})),
              HasSubstr("and quota_limit 50 %"));
  EXPECT_THAT(Refused(Update(Sharing({{"gpu_mem", 1}}), {"gpu_mem"})), HasSubstr("gpu_mem is 1 B"));
  EXPECT_THAT(Refused(Update({}, {})),
              HasSubstr("names no setting; name at least one of sm_partition, quota_request"));
  EXPECT_THAT(Refused(Update({}, {"quota"})),
              HasSubstr("there is no setting 'quota' that an update could change"));
  auto absent = Update(Sharing({{"quota_limit", 80}}), {"quota_limit"});
  absent.mutable_key()->set_version("9");
  EXPECT_THAT(Refused(absent), HasSubstr("its versions are 1, 2"));
  absent.mutable_key()->set_name("g");
  EXPECT_THAT(Refused(absent), HasSubstr("there is no function 'g'"));
}

TEST_F(UpdateTest, DeploymentsAreRefusedForTheSameReasons) {
  for (const auto& one : Cases()) {
    proto::DeployFunction wish;
    *wish.mutable_record() = one.record;
    *wish.mutable_record()->mutable_sharing() = one.sharing;
    EXPECT_THAT(std::string(registry.ValidateDeploy(wish).status().message()), HasSubstr(one.refused));
    EXPECT_EQ(registry.ValidateDeploy(wish).ok(), *one.refused == '\0') << one.refused;
  }
}

}  // namespace
}  // namespace troupe::cluster::function_sharing_test
