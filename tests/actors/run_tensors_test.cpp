// The tensors of a run are written to the run log and read from it: small ones inline, others as blobs that
// come part by part. The manager is scripted.
#include "actors/gateway/run_tensors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/digest.hpp"
#include "tests/actors/world.hpp"
#include "transport/fake_tensor_channel.hpp"

namespace troupe::actors::run_tensors_test {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using transport::FakeTensorChannel;

constexpr std::uint64_t kInline = 1000;
constexpr std::uint64_t kPart = 100'000;

// The objects of the scripted manager, and the ways in which it misbehaves.
struct Objects {
  std::map<std::string, std::string> kept;
  std::vector<std::uint64_t> asked;                  // offsets of the parts
  std::map<std::uint64_t, proto::TensorRef> handed;  // parts that lie in its memory until they are released
  std::uint64_t claims = 0;  // the length that it claims for an object, which is more than the object has
  absl::Status failure;      // the failure of all parts but the first
};

class Manager : public caf::event_based_actor {
 public:
  Manager(caf::actor_config& config, std::shared_ptr<Objects> objects, FakeTensorChannel* channel)
      : caf::event_based_actor(config), objects_(std::move(objects)), channel_(channel) {}
  caf::behavior make_behavior() override {
    return {[this](const proto::StoreBlob& blob) { return Keep(blob); },
            [this](const proto::FetchObject& part) { return Fetch(part); },
            [this](const proto::ReleaseFetched& fetched) {
              EXPECT_TRUE(channel_->Release(objects_->handed.at(fetched.release())).ok());
              objects_->handed.erase(fetched.release());
            }};
  }

 private:
  proto::StoreBlobReply Keep(const proto::StoreBlob& blob) {
    const auto data = channel_->Fetch(blob.data().data());
    EXPECT_TRUE(data.ok()) << data.status();
    std::string bytes(reinterpret_cast<const char*>(data->bytes().data()), data->bytes().size());
    proto::StoreBlobReply reply;
    reply.set_digest(Sha256Hex(bytes));
    objects_->kept[reply.digest()] = std::move(bytes);
    return reply;
  }
  proto::FetchReply Fetch(const proto::FetchObject& part) {
    objects_->asked.push_back(part.offset());
    const auto object = objects_->kept.find(part.digest());
    absl::Status status = part.offset() > 0 ? objects_->failure : absl::OkStatus();
    if (object == objects_->kept.end()) status = absl::NotFoundError("there is no such object");
    proto::FetchReply reply;
    reply.set_code(static_cast<int>(status.code()));
    reply.set_message(std::string(status.message()));
    if (!status.ok()) return reply;
    const std::string bytes = object->second.substr(part.offset(), part.length());
    reply.set_total(object->second.size() + objects_->claims);
    *reply.mutable_data() = *channel_->Put(std::as_bytes(std::span(bytes)), "part");
    reply.set_release(++last_);
    objects_->handed[last_] = reply.data();
    return reply;
  }

  const std::shared_ptr<Objects> objects_;
  FakeTensorChannel* const channel_;
  std::uint64_t last_ = 0;
};

// Stands for a run; when it is told to cancel, it does inside an actor what the test wants.
class Owner : public RunSelf::base {
 public:
  Owner(caf::actor_config& config, ClusterManagerActor manager, FakeTensorChannel* channel)
      : RunSelf::base(config),
        tensors_(this, calls_, RouterActor(), std::move(manager), *channel,
                 {seconds(5), kInline, true, kPart}) {}
  behavior_type make_behavior() override {
    return {[](const proto::InferRequest&) { return proto::InferReply(); },
            [this](const proto::CancelInfer&) { todo(tensors_); },
            [this](const proto::Continue& message) { tensors_.Resume(message); },
            [](const proto::RunTaken&) {},
            [](const proto::Tick&) {},
            [](const proto::PeerUp&, const caf::strong_actor_ptr&) {},
            [](const proto::PeerLost&) {}};
  }
  void on_exit() override { tensors_.Clear(); }
  std::function<void(RunTensors&)> todo;

 private:
  PendingCalls calls_;
  RunTensors tensors_;
};

RunValue ValueOf(const std::string& name, std::size_t size) {
  RunValue value;
  value.spec.set_name(name);
  value.spec.set_type(proto::UINT8);
  value.spec.add_shape(static_cast<std::int64_t>(size));
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 31 % 251);
  value.bytes = std::make_shared<const std::string>(std::move(bytes));
  return value;
}

class RunTensorsTest : public testing::Test {
 protected:
  RunTensorsTest() {
    manager_ = world_.system().spawn<Manager>(objects_, &there_);
    run_ = caf::actor_cast<caf::actor>(
        world_.system().spawn<Owner>(caf::actor_cast<ClusterManagerActor>(manager_), &here_));
    world_.Settle();
  }
  ~RunTensorsTest() override {
    for (auto* actor : {&run_, &manager_}) {
      caf::anon_send_exit(*actor, caf::exit_reason::user_shutdown);
      *actor = nullptr;
    }
    world_.Settle();
  }
  void Do(std::function<void(RunTensors&)> what) {
    static_cast<Owner*>(caf::actor_cast<caf::abstract_actor*>(run_))->todo = std::move(what);
    caf::anon_send(run_, proto::CancelInfer());
    world_.Run(seconds(10));
  }
  RunTensors::Stored Store(const std::vector<RunValue>& values) {
    std::optional<absl::StatusOr<RunTensors::Stored>> stored;
    Do([&](RunTensors& tensors) {
      tensors.Store(values, [&](absl::StatusOr<RunTensors::Stored> result) {
        EXPECT_FALSE(stored.has_value()) << "a second answer";
        stored = std::move(result);
      });
    });
    EXPECT_TRUE(stored.has_value() && stored->ok());
    return stored.has_value() && stored->ok() ? **stored : RunTensors::Stored();
  }
  absl::StatusOr<std::vector<RunValue>> Load(const RunTensors::Stored& stored) {
    std::optional<absl::StatusOr<std::vector<RunValue>>> values;
    Do([&](RunTensors& tensors) {
      tensors.Load(stored, [&](absl::StatusOr<std::vector<RunValue>> result) {
        EXPECT_FALSE(values.has_value()) << "a second answer";
        values = std::move(result);
      });
    });
    if (!values.has_value()) return absl::InternalError("no answer");
    return *std::move(values);
  }
  // No memory is held for a transfer that has ended.
  void ExpectNothingLeft() {
    EXPECT_THAT(objects_->handed, IsEmpty());
    EXPECT_EQ(here_.used(), Bytes());
    EXPECT_EQ(there_.used(), Bytes());
  }

  World world_{0};
  std::shared_ptr<FakeTensorChannel::World> hosts_ = FakeTensorChannel::NewWorld();
  FakeTensorChannel here_{hosts_, MiB(1), "gateway"};
  FakeTensorChannel there_{hosts_, MiB(1), "manager"};
  std::shared_ptr<Objects> objects_ = std::make_shared<Objects>();
  caf::actor manager_;
  caf::actor run_;
};

TEST_F(RunTensorsTest, WhatWasStoredIsLoadedInItsPlace) {
  const std::vector<RunValue> values = {ValueOf("large", 2 * kPart + 50'000), ValueOf("empty", 0),
                                        ValueOf("small", kInline), ValueOf("blob", kInline + 1),
                                        ValueOf("whole", 2 * kPart)};
  const auto stored = Store(values);
  ASSERT_EQ(stored.size(), 5);
  for (int i = 0; i < stored.size(); ++i)
    EXPECT_EQ(stored[i].has_blob(), values[static_cast<std::size_t>(i)].bytes->size() > kInline) << i;
  EXPECT_EQ(objects_->kept.size(), 3u);
  ExpectNothingLeft();
  const auto loaded = Load(stored);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  ASSERT_EQ(loaded->size(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ((*loaded)[i].spec.name(), values[i].spec.name());
    EXPECT_EQ(*(*loaded)[i].bytes, *values[i].bytes) << values[i].spec.name();
  }
  std::ranges::sort(objects_->asked);
  EXPECT_THAT(objects_->asked, ElementsAre(0, 0, 0, kPart, kPart, 2 * kPart))
      << "a part is too large or was asked for twice";
  ExpectNothingLeft();
}

TEST_F(RunTensorsTest, ABlobThatFailsIsTheAnswerAndTheOthersLeaveNothing) {
  const auto stored = Store({ValueOf("large", 2 * kPart), ValueOf("blob", kInline + 1)});
  objects_->failure = absl::UnavailableError("its disk is gone");
  const auto loaded = Load(stored);
  EXPECT_EQ(loaded.status(), objects_->failure);
  EXPECT_THAT(objects_->asked, ElementsAre(0, 0, kPart)) << "the transfer went on behind the failure";
  ExpectNothingLeft();
  objects_->kept.clear();
  EXPECT_TRUE(absl::IsNotFound(Load(stored).status()));
}

TEST_F(RunTensorsTest, ABlobThatIsShorterThanItSaysIsDataLoss) {
  const auto stored = Store({ValueOf("large", kPart + 1)});
  objects_->claims = 1;
  const auto loaded = Load(stored);
  EXPECT_TRUE(absl::IsDataLoss(loaded.status())) << loaded.status();
  EXPECT_THAT(loaded.status().message(), HasSubstr("ends after 100001 bytes of 100002"));
  ExpectNothingLeft();
}

TEST_F(RunTensorsTest, WithoutAManagerItEndsToo) {
  const auto stored = Store({ValueOf("blob", kPart)});
  caf::anon_send_exit(manager_, caf::exit_reason::kill);
  world_.Settle();
  EXPECT_TRUE(absl::IsUnavailable(Load(stored).status()));
  ExpectNothingLeft();
}

}  // namespace
}  // namespace troupe::actors::run_tensors_test
