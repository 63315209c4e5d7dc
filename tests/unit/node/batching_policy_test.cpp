#include "node/scheduling/policies/batching_policy.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "node/requests/batch_terms.hpp"
#include "node/scheduling/batch_profiles.hpp"

namespace troupe::node::batching_policy_test {
namespace {

using std::chrono::milliseconds;

constexpr Time kNow = Time(std::chrono::seconds(100));

Time In(int ms) {
  return kNow + milliseconds(ms);
}
// A size that was measured often enough.
BatchSize Known(std::uint32_t rows, int ms) {
  return {.rows = rows, .prepared = true, .seen = kBelievedRuns, .run = milliseconds(ms)};
}
BatchSize Untried(std::uint32_t rows) {
  return {.rows = rows, .prepared = true, .seen = 0, .run = std::nullopt};
}

TEST(BatchingPolicy, ABatchIsTheSizeThatServesMostAndMakesNoneLate) {
  struct Case {
    const char* what;
    std::vector<BatchSize> sizes;
    std::vector<BatchCandidate> candidates;
    int backlog_ms;
    std::size_t requests;
    std::uint32_t rows;
  };
  const std::vector<BatchSize> cheap = {Known(1, 10), Known(2, 11), Known(4, 14), Known(8, 20)};
  const std::vector<BatchCandidate> eight(8);
  const Case cases[] = {
      {"as many as wait", cheap, eight, 0, 8, 8},
      {"the largest size that their sum has", cheap, {{}, {}, {}, {}, {}, {}, {}}, 0, 4, 4},
      {"one alone", cheap, {{}}, 0, 1, 1},
      {"rows are added up", cheap, {{.rows = 1}, {.rows = 3}, {.rows = 2}}, 0, 2, 4},
      {"a sum that no size has", cheap, {{.rows = 1}, {.rows = 2}}, 0, 1, 1},
      {"beyond the largest size", cheap, {{.rows = 8}, {.rows = 1}}, 0, 1, 8},
      {"a size without a plan",
       {Known(1, 10), Known(2, 11), {.rows = 4, .prepared = false, .seen = 9, .run = milliseconds(12)}},
       eight,
       0,
       2,
       2},
      {"a size that serves no more", {Known(1, 10), Known(2, 20), Known(4, 40)}, eight, 0, 1, 1},
      {"the larger one serves less", {Known(1, 10), Known(2, 11), Known(4, 30)}, eight, 0, 2, 2},
      {"nothing is known", {Untried(1), Untried(2)}, eight, 0, 1, 1},
      {"a size is tried when its half is known", {Known(1, 10), Untried(2), Untried(4)}, eight, 0, 2, 2},
      {"and taken for slow", {Known(1, 10), Untried(2)}, {{.deadline = In(15)}, {}}, 0, 1, 1},
      {"the first one would be late", cheap, {{.deadline = In(12)}, {}, {}, {}}, 0, 1, 1},
      {"the first one would be late by more than two", cheap, {{.deadline = In(13)}, {}, {}, {}}, 0, 2, 2},
      {"it is late anyhow", cheap, {{.deadline = In(5)}, {}, {}, {}}, 0, 4, 4},
      {"what the GPU has to do before counts", cheap, {{.deadline = In(45)}, {}, {}, {}}, 30, 2, 2},
      {"the last one would be late behind the others, too",
       cheap,
       {{}, {}, {}, {.deadline = In(15)}},
       0,
       4,
       4},
  };
  for (const Case& c : cases) {
    const auto choice = ChooseBatch(
        {.now = kNow, .backlog = milliseconds(c.backlog_ms), .candidates = c.candidates, .sizes = c.sizes});
    EXPECT_EQ(choice.requests, c.requests) << c.what;
    EXPECT_EQ(choice.rows, c.rows) << c.what;
  }
}

TEST(BatchingPolicy, CompanyIsAwaitedWithinWhatADeadlineSpares) {
  const BatchingRules slack = *FindBatchingPolicy("slack");
  EXPECT_EQ(CompanyUntil(*FindBatchingPolicy("greedy"), In(1000), Duration(), kNow), kNow);
  EXPECT_EQ(CompanyUntil(slack, In(50), milliseconds(10), kNow), In(20));  // half of 40 ms
  EXPECT_EQ(CompanyUntil(slack, In(5), milliseconds(10), kNow), kNow);
  EXPECT_EQ(CompanyUntil(slack, In(5000), milliseconds(10), kNow), kNow + slack.longest);
  EXPECT_EQ(CompanyUntil(slack, Time::max(), milliseconds(10), kNow), kNow + slack.longest);
}

TEST(BatchingPolicy, ByName) {
  EXPECT_FALSE(FindBatchingPolicy("off")->Joins());
  EXPECT_TRUE(FindBatchingPolicy("greedy")->Joins());
  const auto unknown = FindBatchingPolicy("lazy");
  EXPECT_TRUE(absl::IsNotFound(unknown.status()));
  EXPECT_THAT(unknown.status().message(), testing::HasSubstr("off, greedy, slack"));
}

proto::TensorSpec Spec(const char* name, std::vector<std::int64_t> shape) {
  proto::TensorSpec spec;
  spec.set_name(name);
  spec.set_type(proto::FP32);
  for (const auto size : shape) spec.add_shape(size);
  return spec;
}
proto::FunctionRecord Open() {
  proto::FunctionRecord function;
  function.mutable_key()->set_version("3");
  *function.add_inputs() = Spec("x", {-1, 4});
  *function.add_outputs() = Spec("y", {-1, 2});
  return function;
}
proto::SubmitRequest RequestOf(std::vector<std::int64_t> shape) {
  proto::SubmitRequest request;
  *request.add_inputs()->mutable_spec() = Spec("x", std::move(shape));
  return request;
}

TEST(BatchTerms, OnlyRowsMayBeOpen) {
  const auto rules = *FindBatchingPolicy("greedy");
  EXPECT_EQ(MostRows(Open(), rules), 8u);
  EXPECT_EQ(MostRows(Open(), *FindBatchingPolicy("off")), 1u);
  const auto with = [&](auto change) {
    auto function = Open();
    change(function);
    return MostRows(function, rules);
  };
  EXPECT_EQ(with([](auto& f) { f.mutable_sharing()->set_max_batch(1); }), 1u);
  EXPECT_EQ(with([](auto& f) { f.mutable_sharing()->set_max_batch(20); }), 16u);
  EXPECT_EQ(with([](auto& f) { f.mutable_sharing()->set_max_batch(1000); }), kMostBatch);
  EXPECT_EQ(with([](auto& f) { f.add_state()->set_input("x"); }), 1u);
  EXPECT_EQ(with([](auto& f) { f.set_run_limit_ns(1); }), 1u);
  EXPECT_EQ(with([](auto& f) { f.mutable_inputs(0)->set_shape(0, 1); }), 1u);
  EXPECT_EQ(with([](auto& f) { f.mutable_inputs(0)->set_shape(1, -1); }), 1u);
  EXPECT_EQ(with([](auto& f) { f.mutable_outputs(0)->set_shape(0, 1); }), 1u);
  EXPECT_EQ(with([](auto& f) { f.clear_outputs(); }), 1u);
  EXPECT_EQ(with([](auto& f) { f.mutable_inputs(0)->clear_shape(); }), 1u);
  EXPECT_EQ(with([](auto& f) { f.mutable_inputs(0)->set_type(proto::BYTES); }), 1u);
}

TEST(BatchTerms, ARequestHasTheShapesOfItsFunction) {
  const auto rules = *FindBatchingPolicy("greedy");
  const auto terms = BatchTermsOf(Open(), RequestOf({2, 4}), rules);
  EXPECT_EQ(terms.kind, "3/0");
  EXPECT_EQ(terms.rows, 2u);
  EXPECT_EQ(terms.most, 8u);
  EXPECT_EQ(BatchTermsOf(Open(), RequestOf({2, 5}), rules).kind, "");
  EXPECT_EQ(BatchTermsOf(Open(), RequestOf({2, 4, 1}), rules).kind, "");
  EXPECT_EQ(BatchTermsOf(Open(), RequestOf({8, 4}), rules).kind, "");  // no room for company
  EXPECT_EQ(BatchTermsOf(Open(), RequestOf({0, 4}), rules).kind, "");
  EXPECT_EQ(BatchTermsOf(Open(), {}, rules).kind, "");
  auto other = Open();
  other.set_precision(proto::PRECISION_BF16);
  EXPECT_NE(BatchTermsOf(other, RequestOf({2, 4}), rules).kind, terms.kind);
}

TEST(BatchProfiles, ASizeThatIsNotUsedIsTriedAgain) {
  BatchProfiles profiles;
  profiles.Prepared(1, 0, 2, MiB(1));
  for (int i = 0; i < 4; ++i) profiles.Observe(1, 2, milliseconds(30));
  for (int i = 0; i < 10; ++i) profiles.Observe(1, 1, milliseconds(10));
  const auto seen = [&] { return profiles.SizesOn(1, {0, 0, MiB(1), MiB(1)}, 2)[1].seen; };
  EXPECT_EQ(seen(), kBelievedRuns);
  for (int i = 0; i < 512; ++i) profiles.Observe(1, 1, milliseconds(10));
  EXPECT_LT(seen(), kBelievedRuns);
  profiles.Observe(1, 2, milliseconds(30));
  EXPECT_EQ(seen(), kBelievedRuns);
}

TEST(BatchProfiles, SizesByGpuAndRoom) {
  BatchProfiles profiles;
  EXPECT_TRUE(profiles.SizesOn(1, {0, 0, MiB(1), MiB(9)}, 8).empty());
  profiles.Observe(1, 1, milliseconds(5));
  EXPECT_FALSE(profiles.Joins(1));
  profiles.Prepared(1, 0, 2, MiB(2));
  profiles.Prepared(1, 0, 4, MiB(4));
  profiles.Prepared(1, 1, 2, MiB(2));
  for (int i = 0; i < 3; ++i) profiles.Observe(1, 2, milliseconds(i == 0 ? 500 : 6));  // the first: not warm
  const auto sizes = profiles.SizesOn(1, {0, 0, MiB(1), MiB(1)}, 4);
  ASSERT_EQ(sizes.size(), 3u);
  EXPECT_FALSE(sizes[0].prepared);  // not kept: every GPU has a plan for one row
  EXPECT_TRUE(sizes[1].prepared);
  EXPECT_FALSE(sizes[2].prepared);  // there is no room
  EXPECT_EQ(sizes[1].seen, 2u);
  EXPECT_EQ(sizes[1].run, milliseconds(6));
  EXPECT_TRUE(profiles.SizesOn(1, {0, 0, MiB(1), MiB(3)}, 4)[2].prepared);
  EXPECT_FALSE(profiles.SizesOn(1, {1, 0, MiB(1), MiB(3)}, 4)[2].prepared);
  profiles.ForgetGpu(0);
  EXPECT_FALSE(profiles.SizesOn(1, {0, 0, MiB(1), MiB(3)}, 4)[1].prepared);
  EXPECT_TRUE(profiles.SizesOn(1, {1, 0, MiB(1), MiB(3)}, 4)[1].prepared);
  profiles.Refuse(1);
  EXPECT_TRUE(profiles.SizesOn(1, {1, 0, MiB(1), MiB(3)}, 4).empty());
  profiles.Forget(1);
  EXPECT_FALSE(profiles.Joins(1));
}

}  // namespace
}  // namespace troupe::node::batching_policy_test
