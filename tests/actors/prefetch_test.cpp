// Prefetch: a model with many requests comes to another GPU while that GPU is idle, and no request is harmed
// by it; some only take longer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/actors/world.hpp"

namespace troupe::actors {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Contains;
using testing::HasSubstr;

// Four GPUs, on which a load takes 105 ms and has its GPU for itself; a run takes 900 ms.
class Prefetch : public testing::Test {
 protected:
  Prefetch()
      : world_(1, 4, Profile(), {}, GiB(2), [](NodeOptions& options) {
          options.policies.prefetch = "ahead";
          options.scheduler.swap_ahead = 1;
        }) {
    EXPECT_TRUE(world_.Deploy("resnet", MiB(100)).ok());
  }
  static FakeWorkerProfile Profile() {
    FakeWorkerProfile profile;
    profile.link = {1e9};
    profile.run = milliseconds(900);
    return profile;
  }
  void AskEachSecond(std::uint64_t requests) {
    for (std::uint64_t i = 0; i < requests; ++i) {
      world_.Infer("resnet", next_++, seconds(100));
      world_.Run(seconds(1));
    }
  }
  [[nodiscard]] std::vector<std::string> Swaps() const {
    std::vector<std::string> messages;
    for (const auto& [what, message] : world_.events)
      if (what.starts_with("swap")) messages.push_back(message);
    return messages;
  }
  void ExpectAllServed() {
    world_.Run(seconds(60));
    ASSERT_EQ(world_.answers.size(), next_ - 1);
    for (const auto& answer : world_.answers) EXPECT_EQ(answer.reply.code(), 0) << answer.reply.message();
  }

  World world_;
  std::uint64_t next_ = 1;
};

TEST_F(Prefetch, AHotModelComesToAnotherGpuBeforeItIsAskedForThere) {
  AskEachSecond(20);
  EXPECT_THAT(Swaps(), Contains(HasSubstr("from host ahead of requests, 100 MiB in 105 ms")));
  std::size_t copies = 0;
  for (const auto& worker : world_.node("node-1").workers) copies += worker->life.resident.size();
  EXPECT_GT(copies, 1u);
  // Two requests at a time find a GPU each, so none waits for a load.
  world_.Infer("resnet", next_++, seconds(100));
  world_.Infer("resnet", next_++, seconds(100));
  ExpectAllServed();
  for (std::size_t i = world_.answers.size() - 2; i < world_.answers.size(); ++i)
    EXPECT_LT(world_.answers[i].took, milliseconds(950));
}

TEST_F(Prefetch, RequestsThatComeMeanwhileAreServedAlsoWhenTheWorkersDie) {
  std::size_t killed = 0;
  for (int round = 0; round < 60; ++round) {
    world_.Infer("resnet", next_++, seconds(100));
    world_.Infer("resnet", next_++, seconds(100));
    world_.Run(milliseconds(250));
    for (auto& worker : world_.node("node-1").workers) {
      if (worker->life.loading.empty() || killed >= 3) continue;
      worker->kill();
      ++killed;
    }
    world_.Run(milliseconds(1500));
  }
  ExpectAllServed();
}

}  // namespace
}  // namespace troupe::actors
