// Wishes that a function leaves to the profiles of its model: what the profiles say for them, and how a cluster has its
// functions follow profiles that come, change and go.
#include "cluster/profiling/profiled_sharing.hpp"

#include "cluster/admin/sharing_changes.hpp"
#include "proto/gpu_sharing.hpp"
#include "tests/unit/cluster/cluster_fixture.hpp"

namespace troupe::cluster::profiled_sharing_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

using Wishes = std::vector<std::pair<const char*, std::uint64_t>>;
constexpr auto kAuto = proto::kLeftToManager;

proto::GpuSharing Sharing(const Wishes& settings) {
  proto::GpuSharing sharing;
  for (const auto& [name, value] : settings) proto::Declare(sharing, *proto::FindSharingField(name), value);
  return sharing;
}

// Function "f"; the leading dimensions of its input and its output are open.
proto::FunctionRecord Record(const Wishes& settings = {{"sm_partition", kAuto}, {"max_batch", kAuto}}) {
  auto record = FunctionOf("f");
  *record.mutable_sharing() = Sharing(settings);
  return record;
}

struct Figure {
  std::uint32_t share;
  double throughput;
  std::uint32_t batch = 1;
  std::uint32_t quota = 100;
  std::uint64_t run_bytes = 0;
};

proto::FunctionProfile ProfileOf(const std::vector<Figure>& figures, const std::string& kind = "virtual") {
  proto::FunctionProfile profile;
  profile.set_model_digest(FunctionOf("f").model_digest());
  profile.set_gpu_kind(kind);
  for (const auto& figure : figures) {
    auto& row = *profile.add_rows();
    row.set_sm_partition(figure.share);
    row.set_quota_limit(figure.quota);
    row.set_batch(figure.batch);
    row.set_throughput(figure.throughput);
    row.set_run_bytes(figure.run_bytes);
    row.set_run_ns(static_cast<std::int64_t>(1e9 * figure.batch / figure.throughput));
  }
  return profile;
}

// 98 of 100 requests per second from half of the SMs on.
const std::vector<Figure> kHalf = {{12, 30}, {24, 59}, {50, 98}, {100, 100}};
// A batch of 4 serves 300 requests per second, as many as one of 8, and needs 80 % of the SMs for it.
const std::vector<Figure> kBatches = {{12, 30},     {24, 59},      {50, 98},      {100, 100},
                                      {50, 150, 2}, {80, 175, 2},  {100, 180, 2}, {50, 200, 4},
                                      {80, 295, 4}, {100, 300, 4}, {80, 296, 8},  {100, 305, 8}};

ProfiledValues Values(const proto::FunctionRecord& record, std::vector<proto::FunctionProfile> profiles,
                      const GpuKinds& kinds = {"virtual"}) {
  ProfileRegistry registry;
  for (auto& profile : profiles) registry.Load(std::move(profile), 1);
  return ValuesFromProfiles(record, registry, kinds);
}

// --- what a profile says ---

TEST(ProfiledSharing, TheShareIsTheSmallestThatIsAsGoodAsTheBest) {
  const auto share = Values(Record(), {ProfileOf(kHalf)}).at("sm_partition");
  EXPECT_EQ(share.value, 50u);
  EXPECT_EQ(share.reason, "the smallest within 3 % of the best throughput on 'virtual'");
}

TEST(ProfiledSharing, AShareThatWasNotMeasuredSaysNothing) {
  auto profile = ProfileOf(kHalf);
  for (int row = 0; row < 3; ++row)
    profile.mutable_rows(row)->set_state(row == 2 ? proto::PROFILE_ROW_INTERPOLATED
                                                  : proto::PROFILE_ROW_FAILED);
  EXPECT_EQ(Values(Record(), {profile}).at("sm_partition").value, 0u) << "all SMs alone were measured";
  profile.mutable_rows(0)->set_state(proto::PROFILE_ROW_MEASURED);
  EXPECT_EQ(Values(Record(), {profile}).at("sm_partition").value, 50u) << "between what was measured";
}

TEST(ProfiledSharing, ThroughputCountsInProportionToItsQuota) {
  EXPECT_EQ(Values(Record(), {ProfileOf({{24, 24, 1, 40}, {50, 98}, {50, 49, 1, 50}, {100, 100}})})
                .at("sm_partition")
                .value,
            50u);
}

TEST(ProfiledSharing, TheBatchIsTheSmallestThatServesAsMany) {
  const auto values = Values(Record(), {ProfileOf(kBatches)});
  EXPECT_EQ(values.at("max_batch").value, 4u);
  EXPECT_EQ(values.at("sm_partition").value, 80u) << "each batch up to it is as fast as on all SMs";
  const auto on_half = Record({{"sm_partition", 50}, {"max_batch", kAuto}});
  EXPECT_EQ(Values(on_half, {ProfileOf(kBatches)}).at("max_batch").value, 4u);
  const auto single = Record({{"sm_partition", kAuto}, {"max_batch", 1}});
  EXPECT_EQ(Values(single, {ProfileOf(kBatches)}).at("sm_partition").value, 50u);
  EXPECT_EQ(Values(single, {ProfileOf(kBatches)}).size(), 1u) << "what was declared is not asked for";
  EXPECT_EQ(
      Values(Record(), {ProfileOf({{50, 99}, {100, 100}, {50, 60, 8}, {100, 101, 8}})}).at("max_batch").value,
      1u)
      << "a batch does not serve more";
}

TEST(ProfiledSharing, AModelThatCannotBeBatchedIsNot) {
  auto record = Record();
  record.mutable_inputs(0)->set_shape(0, 1);
  const auto batch = Values(record, {ProfileOf(kBatches)}).at("max_batch");
  EXPECT_EQ(batch.value, 0u);
  EXPECT_THAT(batch.reason, HasSubstr("whose leading dimension is not open"));
}

TEST(ProfiledSharing, InstancesThatWereDeclaredFit) {
  const auto share =
      Values(Record({{"sm_partition", kAuto}, {"max_instances", 3}}), {ProfileOf(kHalf)}).at("sm_partition");
  EXPECT_EQ(share.value, 33u);
  EXPECT_THAT(share.reason, HasSubstr("100 % / 3 instances; 50 % is the smallest"));
}

TEST(ProfiledSharing, OfSeveralKindsTheMoreCarefulValueCounts) {
  const GpuKinds kinds = {"fast", "slow"};
  const auto values =
      Values(Record(),
             {ProfileOf(kBatches, "slow"),
              ProfileOf({{12, 50}, {24, 99}, {100, 100}, {12, 50, 2}, {24, 200, 2}, {100, 200, 2}}, "fast")},
             kinds);
  EXPECT_EQ(values.at("max_batch").value, 2u);
  EXPECT_EQ(values.at("max_batch").reason,
            "the smallest within 3 % of the best throughput on 'fast' (2), 'slow' (4)");
  EXPECT_EQ(values.at("sm_partition").value, 80u);
}

struct Nothing {
  std::vector<proto::FunctionProfile> profiles;
  GpuKinds kinds;
  const char* reason;
};

TEST(ProfiledSharing, WhereAProfileDoesNotSayItTheReasonIsNamed) {
  auto half_precision = ProfileOf(kHalf);
  half_precision.set_precision(proto::PRECISION_FP16);
  auto other_model = ProfileOf(kHalf);
  other_model.set_model_digest("other");
  auto failed = ProfileOf(kHalf);
  failed.mutable_rows(3)->set_state(proto::PROFILE_ROW_FAILED);
  failed.mutable_rows(3)->clear_throughput();
  const std::vector<Nothing> cases = {
      {{}, {}, "no node with a GPU has joined the cluster"},
      {{}, {"virtual"}, "no profile of its model in fp32 on 'virtual'"},
      {{ProfileOf(kHalf, "H100")},
       {"virtual"},
       "no profile of its model in fp32 on 'virtual', but on 'H100'"},
      {{ProfileOf(kHalf)}, {"H100", "virtual"}, "no profile of its model in fp32 on 'H100'"},
      {{half_precision}, {"virtual"}, "no profile of its model in fp32 on 'virtual'"},
      {{other_model}, {"virtual"}, "no profile of its model in fp32 on 'virtual'"},
      {{failed}, {"virtual"}, "the profile on 'virtual' has not both all SMs and a smaller share"},
      {{ProfileOf({{100, 100}})},
       {"virtual"},
       "the profile on 'virtual' has not both all SMs and a smaller share"},
      {{ProfileOf({{12, 90}, {24, 91}})}, {"virtual"}, "the profile on 'virtual' has not both all SMs"},
  };
  for (const auto& one : cases) {
    const auto share = Values(Record(), one.profiles, one.kinds).at("sm_partition");
    EXPECT_EQ(share.value, 0u) << one.reason;
    EXPECT_THAT(share.reason, HasSubstr(one.reason));
  }
  EXPECT_EQ(Values(Record(), {ProfileOf(kHalf)}).at("max_batch").reason,
            "the profile on 'virtual' has no batch but one");
  EXPECT_THAT(Values(Record({{"sm_partition", 12}}), {ProfileOf(kHalf)}), IsEmpty());
}

// --- memory ---

// Runs of one, two and four requests take 10, 20 and 40 bytes.
const std::vector<Figure> kMemory = {
    {100, 100, 1, 100, 10}, {50, 98, 1, 100, 9}, {100, 180, 2, 100, 20}, {100, 300, 4, 100, 40}};

ProfiledValue MemoryOf(Wishes settings, std::vector<proto::FunctionProfile> profiles = {ProfileOf(kMemory)},
                       const GpuKinds& kinds = {"virtual"}) {
  settings.emplace_back("gpu_mem", kAuto);
  auto record = Record(settings);
  record.set_weights_bytes(1000);
  return Values(record, std::move(profiles), kinds).at("gpu_mem");
}

TEST(ProfiledSharing, TheMemoryIsThatOfItsInstancesAndOneRunMore) {
  const auto four = MemoryOf({{"max_instances", 4}});
  EXPECT_EQ(four.value, 1000u + 5 * 10);
  EXPECT_EQ(four.reason, "weights and 5 runs of a request on 'virtual'");
  EXPECT_EQ(MemoryOf({{"sm_partition", 12}}).value, 1000u + 9 * 10) << "eight runs of 12 % compute at a time";
  EXPECT_EQ(MemoryOf({{"quota_limit", 50}}).value, 1000u + 2 * 10) << "with a quota it has one instance";
  const auto batches = MemoryOf({{"max_instances", 1}, {"max_batch", 3}});
  EXPECT_EQ(batches.value, 1000u + 2 * 40) << "a run of three requests takes no more than one of four";
  EXPECT_EQ(batches.reason, "weights and 2 runs of 3 requests on 'virtual'");
}

TEST(ProfiledSharing, TheMemoryGoesWithTheOtherValuesOfTheProfile) {
  EXPECT_EQ(MemoryOf({{"sm_partition", kAuto}, {"max_batch", kAuto}}).value, 1000u + 3 * 40)
      << "50 % of the SMs, and batches of 4";
}

TEST(ProfiledSharing, OfSeveralKindsTheLargerMemoryCounts) {
  auto larger = ProfileOf({{100, 100, 1, 100, 30}}, "large");
  const auto memory = MemoryOf({{"max_instances", 1}}, {ProfileOf(kMemory), larger}, {"virtual", "large"});
  EXPECT_EQ(memory.value, 1000u + 2 * 30);
}

TEST(ProfiledSharing, WhyThereIsNoMemoryIsNamed) {
  EXPECT_THAT(MemoryOf({}).reason, HasSubstr("give sm_partition or max_instances"));
  EXPECT_THAT(MemoryOf({{"max_instances", 1}, {"max_batch", 8}}).reason,
              HasSubstr("the profile on 'virtual' has no memory of a run of 8 requests"));
  EXPECT_THAT(MemoryOf({{"max_instances", 1}}, {ProfileOf(kHalf)}).reason,
              HasSubstr("the profile on 'virtual' has no memory of a run of 1 request"));
}

// --- what was declared ---

TEST(ProfiledSharing, WhatProfilesDoNotSayIsNotLeftToThem) {
  const auto why = [](const std::string& name) {
    proto::GpuSharing sharing;
    sharing.add_automatic(name);
    const auto fault = proto::FaultIn(sharing);
    return fault ? fault->why : "";
  };
  EXPECT_EQ(why("sm_partition"), "");
  EXPECT_EQ(why("max_batch"), "");
  EXPECT_EQ(why("quota_request"), "");
  EXPECT_EQ(why("gpu_mem"), "");
  for (const char* name : {"quota_limit", "max_instances"})
    EXPECT_THAT(why(name), HasSubstr("is left to the manager, and it does not choose it"));
  EXPECT_THAT(why("quota"), HasSubstr("a setting is left to the manager that does not exist"));
  auto twice = Sharing({{"max_batch", kAuto}});
  twice.add_automatic("max_batch");
  EXPECT_THAT(proto::FaultIn(twice)->why, HasSubstr("left to the manager twice"));
}

TEST(ProfiledSharing, ADeclarationReplacesWhatAProfileGave) {
  const auto& share = *proto::FindSharingField("sm_partition");
  auto sharing = Sharing({{"sm_partition", kAuto}, {"quota_limit", 80}});
  sharing.set_sm_partition(50);
  EXPECT_EQ(DescribeSharing(sharing), "sm_partition auto (50%), quota_limit 80%");
  EXPECT_EQ(DescribeSharing(proto::Declarations(sharing)), "sm_partition auto, quota_limit 80%");
  proto::Declare(sharing, share, kAuto);
  EXPECT_EQ(sharing.sm_partition(), 50u) << "it was left to the profiles before";
  proto::Declare(sharing, share, 0);
  EXPECT_EQ(DescribeSharing(sharing), "quota_limit 80%");
  EXPECT_THAT(sharing.automatic(), IsEmpty());
}

// --- a cluster whose functions follow ---

class Following : public ClusterTest {
 protected:
  // Function "f" has a copy on node "n1", whose GPU is "virtual", and leaves its share to the profiles.
  Following() {
    Begin();
    Stored();
    JoinNode("n1");
    Stored();
    Pulse();
    Pulse(SharingChanges::kSettling);
    Deploy("f", 2);
    Stored();
    Adopted();
    EXPECT_THAT(Update({{"sm_partition", kAuto}}), ElementsAre("store f/1 revision"));
    EXPECT_THAT(Stored(), ElementsAre("tell members", "manager: function-updated", "answer 40 OK"));
    EXPECT_THAT(Pulse(), IsEmpty());
  }
  Lines Update(const Wishes& settings) {
    AdminAsked asked{.ask = 40};
    auto& update = *asked.request.mutable_update_function();
    update.mutable_key()->set_name("f");
    *update.mutable_sharing() = Sharing(settings);
    for (const auto& [name, value] : settings) update.add_settings(name);
    return On(std::move(asked));
  }
  Lines Import(const proto::FunctionProfile& profile) {
    AdminAsked asked{.ask = 70};
    asked.request.mutable_import_profile()->mutable_key()->set_name("f");
    *asked.request.mutable_import_profile()->mutable_profile() = profile;
    On(std::move(asked));
    return Stored();
  }
  Lines RemoveProfile(const std::string& kind = {}) {
    AdminAsked asked{.ask = 80};
    asked.request.mutable_remove_profile()->mutable_key()->set_name("f");
    asked.request.mutable_remove_profile()->set_gpu_kind(kind);
    return On(std::move(asked));
  }
  // "50 PROFILED: ...": of its share, as people are shown it.
  std::string Share() {
    AdminAsked asked{.ask = 99};
    asked.request.mutable_show_function()->mutable_key()->set_name("f");
    ++inquiry_;
    for (const auto& line : On(std::move(asked)))
      if (line.starts_with("describe ")) On(NodeDescribed{inquiry_, absl::UnavailableError("not now")});
    if (reply_.functions().empty() || reply_.functions(0).sharing().empty()) return "nothing is shown";
    const auto& setting = reply_.functions(0).sharing(0);
    return absl::StrCat(setting.value(), " ", proto::AppliedSetting::Source_Name(setting.source()), ": ",
                        setting.reason());
  }

 private:
  std::uint64_t inquiry_ = 0;
};

TEST_F(Following, AFunctionFollowsAProfileThatComesChangesAndGoes) {
  EXPECT_EQ(Share(), "100 DEFAULT: all SMs (auto: no profile of its model in fp32 on 'virtual')");
  Import(ProfileOf(kHalf));
  EXPECT_THAT(Share(), HasSubstr("what the profiles say now does not apply yet"));
  EXPECT_THAT(Pulse(), ElementsAre("store f/1 revision"));
  EXPECT_THAT(Stored(), ElementsAre("tell members", "manager: function-updated"));
  EXPECT_EQ(Share(), "50 PROFILED: the smallest within 3 % of the best throughput on 'virtual'");
  EXPECT_THAT(Pulse(), IsEmpty());

  Import(ProfileOf({{12, 99}, {100, 100}}));
  EXPECT_THAT(Pulse(), ElementsAre("store f/1 revision"));
  Stored();
  EXPECT_THAT(Share(), HasSubstr("12 PROFILED"));

  EXPECT_THAT(RemoveProfile("H100"), ElementsAre("answer 80 NOT_FOUND"));
  EXPECT_THAT(reply_.message(), HasSubstr("no profile on 'H100'; there are profiles on 'virtual'"));
  EXPECT_THAT(RemoveProfile(), ElementsAre(HasSubstr("store -profile/")));
  EXPECT_THAT(Stored(), ElementsAre("tell members", "manager: profile-removed", "answer 80 OK"));
  Pulse();
  Stored();
  EXPECT_THAT(Share(), HasSubstr("100 DEFAULT: all SMs (auto: no profile"));
  EXPECT_THAT(RemoveProfile(), ElementsAre("answer 80 NOT_FOUND"));
}

TEST_F(Following, AnUpdateFindsTheProfileAtOnce) {
  EXPECT_THAT(Update({{"sm_partition", 0}}), ElementsAre("store f/1 revision"));
  Stored();
  Import(ProfileOf(kHalf));
  EXPECT_THAT(Pulse(), IsEmpty()) << "a function that says nothing is as it was";
  EXPECT_THAT(Share(), HasSubstr("100 DEFAULT: all SMs"));
  Update({{"sm_partition", kAuto}, {"max_instances", 4}});
  Stored();
  EXPECT_THAT(Share(), HasSubstr("25 PROFILED: 100 % / 4 instances"));
  Update({{"max_instances", 10}});
  Stored();
  EXPECT_THAT(Share(), HasSubstr("10 PROFILED")) << "what a profile gave gives way to what is declared";
  Update({{"max_instances", 0}});
  Stored();
  EXPECT_THAT(Share(), HasSubstr("50 PROFILED"));
  EXPECT_THAT(Update({{"quota_limit", kAuto}}), ElementsAre("answer 40 INVALID_ARGUMENT"));
}

TEST_F(Following, AnotherKindOfGpuWithoutAProfileTakesItBack) {
  Import(ProfileOf(kHalf));
  Pulse();
  Stored();
  EXPECT_THAT(Share(), HasSubstr("50 PROFILED"));
  JoinNode("n2", 5, "H100");
  Stored();
  EXPECT_THAT(Pulse(), Contains("store f/1 revision"));
  Stored();
  EXPECT_EQ(Share(), "100 DEFAULT: all SMs (auto: no profile of its model in fp32 on 'H100')");
}

TEST_F(Following, WhatCouldNotBeStoredFollowsLater) {
  Import(ProfileOf(kHalf));
  EXPECT_THAT(Pulse(), ElementsAre("store f/1 revision"));
  EXPECT_THAT(Stored(absl::ResourceExhaustedError("the disk is full")), IsEmpty());
  EXPECT_THAT(Pulse(), IsEmpty());
  EXPECT_THAT(Pulse(SharingChanges::kRetry), Contains("store f/1 revision"));
  Stored();
  EXPECT_THAT(Share(), HasSubstr("50 PROFILED"));
}

TEST_F(Following, ARestartedManagerKeepsTheValuesUntilItsNodesAreBack) {
  CatalogueRecords records;
  records.cluster = "c";
  auto stored = Record();
  stored.mutable_key()->set_version("1");
  stored.mutable_sharing()->set_sm_partition(50);
  stored.set_loaded(true);
  records.functions.push_back(stored);
  records.profiles.push_back(ProfileOf(kHalf));
  Begin(std::move(records));
  Stored();
  EXPECT_THAT(Pulse(), IsEmpty());
  EXPECT_THAT(Update({{"quota_limit", 80}}), ElementsAre("store f/1 revision"));
  Stored();
  EXPECT_THAT(reply_.functions(0).sharing(0).value(), 50) << "no node has joined yet";
  EXPECT_THAT(Pulse(SharingChanges::kSettling), Not(Contains("store f/1 revision")));
  EXPECT_THAT(Share(), HasSubstr("50 PROFILED: what the profiles say now does not apply yet"));
  JoinNode("n1", 3);
  Stored();
  EXPECT_THAT(Pulse(), Not(Contains("store f/1 revision")));
  EXPECT_THAT(Share(), HasSubstr("50 PROFILED: the smallest"));
}

}  // namespace
}  // namespace troupe::cluster::profiled_sharing_test
