#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/temporary_directory.hpp"
#include "transport/meeting_place.hpp"

namespace troupe::transport::test {
namespace {

using testing::HasSubstr;

constexpr Duration kLong = std::chrono::seconds(60);
constexpr Duration kShort = std::chrono::milliseconds(20);

class MeetingPlaceTest : public testing::Test {
 protected:
  troupe::test::TemporaryDirectory directory_;
  const std::string path_ = directory_ / "place";
  std::unique_ptr<MeetingPlace> place_ = *MeetingPlace::Open(path_);
};

TEST_F(MeetingPlaceTest, GuestsThatCameAreToldTogether) {
  std::vector<std::string> told(3);
  std::vector<std::thread> guests;
  for (std::string& answer : told)
    guests.emplace_back([&] { answer = AttendMeeting(path_, "m", "", kLong).value_or("nothing"); });
  EXPECT_TRUE(place_->Gather("m", 3, kLong).ok());
  const std::string answer("an answer\0of any bytes", 22);
  place_->Answer("m", answer);
  for (std::thread& guest : guests) guest.join();
  EXPECT_THAT(told, testing::Each(answer));
  EXPECT_EQ(AttendMeeting(path_, "m", "", kLong).value_or(""), answer)
      << "a guest that comes late hears the same answer";
}

TEST_F(MeetingPlaceTest, OfSeveralMeetingsEachIsAnsweredForItself) {
  std::thread guest([&] { EXPECT_EQ(AttendMeeting(path_, "second", "", kLong).value_or(""), "2"); });
  EXPECT_TRUE(place_->Gather("second", 1, kLong).ok());
  EXPECT_TRUE(absl::IsDeadlineExceeded(place_->Gather("first", 1, kShort).status()));
  place_->Answer("first", std::string("1"));
  place_->Answer("second", std::string("2"));
  place_->Answer("second", std::string("another"));  // the first answer counts
  guest.join();
}

TEST_F(MeetingPlaceTest, TheHostLearnsWhatItsGuestsBring) {
  std::vector<std::thread> guests;
  const std::string bytes("two\0words", 9);
  for (const std::string& offer : {std::string(), bytes, std::string(MeetingLimits::kOffer, 'x')})
    guests.emplace_back([&, offer] { EXPECT_TRUE(AttendMeeting(path_, "m", offer, kLong).ok()); });
  guests.emplace_back([&] { EXPECT_TRUE(AttendMeeting(path_, "other", "not this", kLong).ok()); });
  EXPECT_TRUE(place_->Gather("other", 1, kLong).ok());
  const auto brought = place_->Gather("m", 3, kLong);
  ASSERT_TRUE(brought.ok()) << brought.status();
  EXPECT_THAT(*brought, testing::UnorderedElementsAre("", bytes, std::string(MeetingLimits::kOffer, 'x')));
  for (const char* const meeting : {"m", "other"}) place_->Answer(meeting, std::string("yes"));
  for (std::thread& guest : guests) guest.join();
  EXPECT_TRUE(absl::IsInvalidArgument(
      AttendMeeting(path_, "m", std::string(MeetingLimits::kOffer + 1, 'x'), kLong).status()));
}

TEST_F(MeetingPlaceTest, AMeetingThatDoesNotTakePlaceSaysWhy) {
  place_->Answer("m", absl::ResourceExhaustedError("there is no room"));
  const auto refused = AttendMeeting(path_, "m", "", kLong).status();
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("there is no room"));
}

TEST_F(MeetingPlaceTest, NoGuestAndNoHostWaitsForEver) {
  EXPECT_TRUE(absl::IsDeadlineExceeded(AttendMeeting(path_, "m", "", kShort).status()));
  const auto alone = place_->Gather("m", 2, kShort).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(alone)) << alone;
  EXPECT_TRUE(absl::IsNotFound(AttendMeeting(directory_ / "nowhere", "m", "", kLong).status()));
  std::thread host([&] { EXPECT_TRUE(absl::IsUnavailable(place_->Gather("m", 1, kLong).status())); });
  place_->Close();
  host.join();
  // The host ends while a guest waits.
  std::thread guest([&] {
    const auto ended = AttendMeeting(path_, "m", "", kLong).status();
    EXPECT_TRUE(absl::IsUnavailable(ended) || absl::IsNotFound(ended)) << ended;
  });
  place_.reset();
  guest.join();
}

TEST_F(MeetingPlaceTest, NonsenseIsNotListenedTo) {
  EXPECT_TRUE(absl::IsInvalidArgument(AttendMeeting(path_, "", "", kLong).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      AttendMeeting(path_, std::string(MeetingLimits::kName + 1, 'm'), "", kLong).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(AttendMeeting(path_, std::string("m\0m", 3), "", kLong).status()));
  const std::string ends(1, '\0');
  for (const std::string& said :
       {std::string("x"), std::string("?"), std::string(1000, '?'), "m" + ends, std::string("?m"), "?" + ends,
        "?m" + ends + std::string(MeetingLimits::kOffer + 1, 'x'),
        "?" + std::string(MeetingLimits::kName + 1, 'm') + ends}) {
    auto connection = *ConnectUnix(path_, kLong);
    ASSERT_TRUE(connection.Send(said, {}, kLong).ok());
    EXPECT_TRUE(absl::IsUnavailable(connection.Receive(kLong).status())) << said.substr(0, 8);
  }
  place_->Answer("m", std::string("still here"));
  EXPECT_EQ(AttendMeeting(path_, "m", "", kLong).value_or(""), "still here");
}

TEST_F(MeetingPlaceTest, AGuestThatLeavesIsNotCounted) {
  auto connection = *ConnectUnix(path_, kLong);
  ASSERT_TRUE(connection.Send(std::string("?m\0", 3), {}, kLong).ok());
  ASSERT_TRUE(place_->Gather("m", 1, kLong).ok());
  connection = UnixConnection();
  // The host hears of the guest that left before it hears of the next one.
  std::thread guest([&] { EXPECT_EQ(AttendMeeting(path_, "other", "", kLong).value_or(""), "yes"); });
  ASSERT_TRUE(place_->Gather("other", 1, kLong).ok());
  EXPECT_TRUE(absl::IsDeadlineExceeded(place_->Gather("m", 1, kShort).status()));
  place_->Answer("other", std::string("yes"));
  guest.join();
}

TEST(MeetingStrangers, ConnectionsThatSayNothingOrNonsenseKeepNoGuestOut) {
  const troupe::test::TemporaryDirectory directory;
  const std::string path = directory / "place";
  auto refusals = std::make_shared<SocketRefusals>();
  auto place = *MeetingPlace::Open(path, refusals);
  std::vector<UnixConnection> silent;
  for (std::size_t i = 0; i < MeetingLimits::kGuests; ++i) silent.push_back(*ConnectUnix(path, kLong));
  std::thread guest([&] { EXPECT_EQ(AttendMeeting(path, "m", "", kLong).value_or(""), "1"); });
  EXPECT_TRUE(place->Gather("m", 1, kLong).ok());
  place->Answer("m", std::string("1"));
  guest.join();
  EXPECT_GE(refusals->count(SocketRefusal::kCrowdedOut), 1u);
  auto& stranger = silent.back();
  ASSERT_TRUE(stranger.Send("!", {}, kLong).ok());
  EXPECT_TRUE(absl::IsUnavailable(stranger.Receive(kLong).status()));
  EXPECT_EQ(refusals->count(SocketRefusal::kBrokenMessage), 1u);
}

}  // namespace
}  // namespace troupe::transport::test
