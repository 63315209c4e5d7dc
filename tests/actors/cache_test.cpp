// The cache of a node by itself: models on their way from the manager to the node's disk.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "actors/node/cache.hpp"
#include "actors/seams/fake_model_repository.hpp"
#include "base/digest.hpp"
#include "tests/actors/world.hpp"

namespace troupe::actors {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

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

  // Another node asks for a range of an object; the answer is in `ranges_` by its offset.
  void Ask(const std::string& object, std::uint64_t offset, std::uint64_t length) {
    proto::FetchObject part;
    part.set_digest(object);
    part.set_offset(offset);
    part.set_length(length);
    world_.system().spawn([this, part](caf::event_based_actor* self) {
      self->request(cache_, caf::infinite, part)
          .then([this, offset = part.offset()](proto::FetchReply& reply) { ranges_[offset] = reply; });
    });
  }

  World world_{0};
  FakeModelRepository disk_;
  CacheActor cache_;
  std::map<std::string, proto::HostModel> replies_;
  std::map<std::uint64_t, proto::FetchReply> ranges_;
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

// The disk does not answer, so that no range counts as here.
TEST_F(CacheTest, ARangeThatDoesNotComeIsRefusedAfterAWhile) {
  world_.MakeModel("one", MiB(1));
  const auto weights = Sha256Hex("weights one");
  disk_.HoldReceiving();
  Fetch(World::ModelDigest("one"), weights);
  world_.Run(milliseconds(100));
  Ask(weights, 0, 3);
  world_.Run(milliseconds(3900));
  EXPECT_TRUE(ranges_.empty()) << "it may come yet";
  world_.Run(milliseconds(200));
  ASSERT_TRUE(ranges_.contains(0));
  EXPECT_EQ(absl::StatusCode(ranges_[0].code()), absl::StatusCode::kAborted);
  EXPECT_THAT(ranges_[0].message(), HasSubstr("has not come to this node yet: ask for it later"));
}

TEST_F(CacheTest, ARangeIsHandedOnAsSoonAsItIsOnTheDisk) {
  world_.MakeModel("one", MiB(1));
  const std::string bytes = "weights one";
  disk_.HoldReceiving();
  Fetch(World::ModelDigest("one"), Sha256Hex(bytes));
  world_.Run(milliseconds(100));
  Ask(Sha256Hex(bytes), 0, 3);
  Ask(Sha256Hex(bytes), 9, 2);
  world_.Run(milliseconds(100));
  EXPECT_TRUE(ranges_.empty());
  disk_.FinishReceiving();
  world_.Run(milliseconds(100));
  ASSERT_EQ(ranges_.size(), 2u);
  EXPECT_EQ(ranges_[0].data().inlined(), "wei");
  EXPECT_EQ(ranges_[0].total(), bytes.size());
  EXPECT_EQ(ranges_[9].data().inlined(), "ne");
  EXPECT_EQ(replies_.size(), 1u);
}

TEST_F(CacheTest, ARangeOfAnObjectThatIsNotFetchedIsNotFound) {
  Ask(Sha256Hex("nothing"), 0, 3);
  world_.Run(milliseconds(100));
  ASSERT_TRUE(ranges_.contains(0));
  EXPECT_EQ(absl::StatusCode(ranges_[0].code()), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace troupe::actors
