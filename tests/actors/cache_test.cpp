// The cache of a node by itself: models on their way from the manager to the node's disk.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "actors/node/cache.hpp"
#include "actors/seams/fake_model_repository.hpp"
#include "base/digest.hpp"
#include "tests/actors/world.hpp"

namespace troupe::actors {
namespace {

using std::chrono::seconds;

class CacheTest : public ::testing::Test {
 protected:
  CacheTest() {
    CacheOptions options;
    options.manager = "manager";
    options.pulls.limits.range_bytes = 3;  // each object comes in several ranges
    cache_ = SpawnCache(world_.system(), options, disk_, world_.directory());
    world_.Run(seconds(1));
  }
  ~CacheTest() override {
    caf::anon_send_exit(cache_, caf::exit_reason::kill);
    world_.ShutDown();  // before the disk goes
  }

  // The answer is in `replies_` by the model's digest.
  void Fetch(const std::string& model, const std::string& weights) {
    proto::FetchModel fetch;
    fetch.mutable_function()->set_model_digest(model);
    fetch.mutable_function()->set_weights_digest(weights);
    world_.system().spawn([this, fetch](caf::event_based_actor* self) {
      self->request(cache_, caf::infinite, fetch).then([this](proto::HostModel& reply) {
        replies_[reply.model_digest()] = reply;
      });
    });
  }

  World world_{0};
  FakeModelRepository disk_;
  CacheActor cache_;
  std::map<std::string, proto::HostModel> replies_;
};

// The models stand for two versions of a function that have the same weights and different code around them.
TEST_F(CacheTest, TwoModelsOfTheSameWeightsAreFetchedAtOnce) {
  for (const char* name : {"one", "two"}) world_.MakeModel(name, MiB(1));
  const auto weights = Sha256Hex("weights one");
  const auto one = World::ModelDigest("one");
  const auto two = World::ModelDigest("two");
  Fetch(one, weights);
  Fetch(two, weights);
  world_.Run(seconds(5));
  ASSERT_EQ(replies_.size(), 2u);
  for (const auto& [model, reply] : replies_) EXPECT_EQ(reply.code(), 0) << model << ": " << reply.message();
  for (const auto& object : {weights, one, two}) EXPECT_TRUE(disk_.Has(object)) << object;
}

}  // namespace
}  // namespace troupe::actors
