// MEETING PLACE: where the receivers of a broadcast wait, and learn from its sender how to join.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "transport/memory_file.hpp"
#include "transport/unix_acceptor.hpp"

namespace troupe::transport {

struct MeetingLimits {
  static constexpr std::size_t kGuests = 64;   // connections at a time; for one more the oldest is closed
  static constexpr std::size_t kAnswers = 64;  // remembered for guests that come late
  static constexpr std::size_t kName = 256;    // bytes of a meeting's name; longer ones are refused
  static constexpr std::size_t kOffer = 256;   // bytes of what a guest brings; longer ones are refused
  static constexpr std::size_t kAnswer = 4096;
  static constexpr Duration kGuest = std::chrono::seconds(10);    // that one may wait for an answer
  static constexpr Duration kQuestion = std::chrono::seconds(2);  // until a guest names its meeting
};

// Listens at a path, with one small thread that sleeps in poll: started by Open, joined by the destructor. A
// guest names a meeting, says what it brings, and waits until the host has answered for it. Answer and
// Gather from any thread.
class MeetingPlace {
 public:
  // AlreadyExists when a living process listens at the path.
  // `refusals` null: counted, and not shown.
  static absl::StatusOr<std::unique_ptr<MeetingPlace>> Open(
      const std::string& path, std::shared_ptr<SocketRefusals> refusals = nullptr);
  ~MeetingPlace();

  // Blocks until so many guests wait for this meeting: what each of them brings, in no order. DeadlineExceeded
  // says how many came.
  absl::StatusOr<std::vector<std::string>> Gather(const std::string& meeting, std::size_t guests,
                                                  Duration timeout);
  // Answers all guests that wait for this meeting and that come later, unless it was answered before. An
  // error, which they get instead of an answer, says that the meeting does not take place.
  void Answer(const std::string& meeting, const absl::StatusOr<std::string>& answer);
  // Gather ends with Unavailable, now and from now on.
  void Close();
  [[nodiscard]] const std::string& path() const { return acceptor_.path(); }

 private:
  struct Guest {
    UnixConnection connection;
    Time until;
    std::string meeting;  // that it waits for; empty: it has not said
    std::string offer;    // what it brings
  };
  MeetingPlace(UnixAcceptor acceptor, UniqueFd wake);
  void Serve();
  bool Step(std::vector<Guest>& guests);
  static bool Understand(Guest& guest, const std::string& question);
  bool Hear(Guest& guest, Time now);
  void Accept(std::vector<Guest>& guests, Time now);
  bool Tell(Guest& guest);
  void Count(const std::vector<Guest>& guests);
  void Wake();

  UnixAcceptor acceptor_;
  UniqueFd wake_;
  std::mutex mutex_;
  std::condition_variable came_;
  std::map<std::string, std::vector<std::string>> waiting_;  // offers by meeting; guarded by mutex_, as below
  std::deque<std::pair<std::string, std::string>> answers_;  // as they are sent
  bool closed_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

// A guest's whole visit: blocks for the answer. `offer`: what it brings, any bytes. NotFound when no process
// listens there, Unavailable when the meeting does not take place or its host is gone, DeadlineExceeded
// without an answer in time.
absl::StatusOr<std::string> AttendMeeting(const std::string& path, const std::string& meeting,
                                          const std::string& offer, Duration timeout);

}  // namespace troupe::transport
