// The bytes that wait for a process that finishes its handshake and does not read are bounded; a slow reader
// keeps its connection.
#include "actors/peers/write_bound.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <caf/all.hpp>
#include <caf/io/all.hpp>
#include <memory>
#include <vector>

#include "actors/peers/guarded_connection.hpp"

namespace troupe::actors {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

class WriteBoundTest : public testing::Test {
 protected:
  std::shared_ptr<UnwrittenBytes> all_ = std::make_shared<UnwrittenBytes>(0);
  WriteBound bound_{all_};
  const Time start_ = Time(std::chrono::hours(1));
};

TEST_F(WriteBoundTest, CountsWhatWaitsAndWhatWasTaken) {
  bound_.Queued(100, true);
  bound_.Queued(40, false);
  EXPECT_EQ(bound_.unwritten(), 140u);
  bound_.Wrote(70, 30);
  EXPECT_EQ(bound_.unwritten(), 70u);
  EXPECT_EQ(*all_, 70u);
  bound_.Wrote(30, 0);  // CAF goes on with the other 40
  EXPECT_EQ(bound_.unwritten(), 40u);
  bound_.Wrote(40, 0);
  EXPECT_EQ(*all_, 0u);
  {
    WriteBound other(all_);
    other.Queued(9, true);
    EXPECT_EQ(*all_, 9u);
  }
  EXPECT_EQ(*all_, 0u) << "a connection that has ended holds nothing";
}

TEST_F(WriteBoundTest, MoreThanTheLargestMessagesIsTooMuch) {
  bound_.Queued(WriteBound::kMost, true);
  EXPECT_TRUE(bound_.Check(start_).ok());
  bound_.Queued(1, false);
  EXPECT_TRUE(absl::IsResourceExhausted(bound_.Check(start_)));
}

TEST_F(WriteBoundTest, APeerThatStandsStillIsClosedAndOneThatReadsSlowlyIsNot) {
  bound_.Queued(100 * kMiB, true);
  EXPECT_TRUE(bound_.Check(start_).ok());
  EXPECT_TRUE(bound_.Check(start_ + WriteBound::kPatience / 2).ok());
  Time now = start_ + WriteBound::kPatience;
  EXPECT_TRUE(absl::IsResourceExhausted(bound_.Check(now)));
  std::uint64_t left = 100 * kMiB;
  for (int window = 0; window < 5; ++window, now += WriteBound::kPatience) {
    bound_.Wrote(kMiB, left -= kMiB);
    EXPECT_TRUE(bound_.Check(now).ok()) << window;
  }
  bound_.Wrote(1000, left - 1000);
  EXPECT_TRUE(absl::IsResourceExhausted(bound_.Check(now)))
      << "a peer that reads a few bytes counts as a reader";
}

TEST_F(WriteBoundTest, APeerThatTookAllBeginsAnew) {
  bound_.Queued(kMiB, true);
  EXPECT_TRUE(bound_.Check(start_).ok());
  bound_.Wrote(kMiB, 0);
  bound_.Queued(10, true);
  EXPECT_TRUE(bound_.Check(start_ + 3 * WriteBound::kPatience).ok());
}

TEST_F(WriteBoundTest, WhenAllConnectionsHoldMuchPatienceIsShort) {
  bound_.Queued(10, true);
  EXPECT_TRUE(bound_.Check(start_).ok());
  EXPECT_TRUE(bound_.Check(start_ + WriteBound::kShortPatience).ok());
  *all_ += WriteBound::kShort;
  EXPECT_TRUE(absl::IsResourceExhausted(bound_.Check(start_ + WriteBound::kShortPatience)));
  *all_ -= WriteBound::kShort;
}

// A connection whose other end is never read.
TEST(GuardedConnection, AConnectionThatIsNotReadIsClosedAndCounted) {
  caf::actor_system_config config;
  config.load<caf::io::middleman>();
  config.set("scheduler.max-threads", static_cast<std::size_t>(1));
  caf::actor_system actors(config);
  const PeerNetwork network(actors.node());
  const auto connections = network.connections;
  int ends[2] = {-1, -1};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  const transport::UniqueFd deaf(ends[1]);
  caf::scoped_actor self(actors);
  constexpr std::size_t kPiece = 8 * kMiB;
  const auto broker = actors.middleman().spawn_broker(
      [&, observer = caf::actor(self)](caf::io::broker* writer) -> caf::behavior {
        Dialled dialled;
        dialled.socket = transport::UniqueFd(ends[0]);
        dialled.peer = std::make_shared<const Peer>(UnaskedPeer("a test"));
        auto scribe = GuardedScribe(actors, network, std::move(dialled));
        const auto handle = scribe->hdl();
        writer->add_scribe(std::move(scribe));
        writer->configure_read(handle, caf::io::receive_policy::at_most(1));
        const std::vector<char> bytes(kPiece);
        // The test writes twice as much as may wait, so that the connection is closed on the way.
        for (std::size_t sent = 0; sent < 2 * WriteBound::kMost && connections->refused().empty();
             sent += kPiece) {
          writer->write(handle, bytes.size(), bytes.data());
          writer->flush(handle);
        }
        return {[=](const caf::io::connection_closed_msg&) {
          writer->send(observer, caf::ok_atom::value);
          writer->quit();
        }};
      });
  self->receive([](caf::ok_atom) {});
  EXPECT_EQ(connections->refused().at("unread"), 1u);
  EXPECT_LE(*connections->unwritten(), WriteBound::kMost + kPiece);
  self->wait_for(broker);
}

}  // namespace
}  // namespace troupe::actors
