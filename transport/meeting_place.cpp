#include "transport/meeting_place.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/status.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::transport {
namespace {

// A question and an answer are one message each, which says with its first byte what it is. In a question the
// meeting's name ends with a zero byte, and the guest's offer follows.
constexpr char kQuestion = '?';
constexpr char kNameEnds = '\0';
constexpr char kTakesPlace = '+';
constexpr char kRefused = '-';

}  // namespace

absl::StatusOr<std::unique_ptr<MeetingPlace>> MeetingPlace::Open(const std::string& path,
                                                                 std::shared_ptr<SocketRefusals> refusals) {
  TROUPE_ASSIGN_OR_RETURN(UnixAcceptor acceptor, UnixAcceptor::Listen(path, std::move(refusals)));
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return ErrnoStatus(errno, "making the wake-up of a meeting place");
  return std::unique_ptr<MeetingPlace>(new MeetingPlace(std::move(acceptor), std::move(wake)));
}

MeetingPlace::MeetingPlace(UnixAcceptor acceptor, UniqueFd wake)
    : acceptor_(std::move(acceptor)), wake_(std::move(wake)), thread_([this] { Serve(); }) {}

MeetingPlace::~MeetingPlace() {
  Close();
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  Wake();
  thread_.join();
}

void MeetingPlace::Wake() {
  const std::uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof(one));
}

void MeetingPlace::Close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  came_.notify_all();
}

absl::StatusOr<std::vector<std::string>> MeetingPlace::Gather(const std::string& meeting, std::size_t guests,
                                                              Duration timeout) {
  std::unique_lock lock(mutex_);
  const auto here = [&] {
    const auto found = waiting_.find(meeting);
    return found == waiting_.end() ? std::size_t{0} : found->second.size();
  };
  const bool ended = came_.wait_for(lock, timeout, [&] { return closed_ || here() >= guests; });
  if (closed_) return absl::UnavailableError(absl::StrCat("the meeting place at ", path(), " has closed"));
  if (ended) return waiting_[meeting];
  return absl::DeadlineExceededError(absl::StrCat(here(), " of ", guests, " guests came to meeting ", meeting,
                                                  " within ", FormatDuration(timeout)));
}

void MeetingPlace::Answer(const std::string& meeting, const absl::StatusOr<std::string>& answer) {
  TROUPE_CHECK(!answer.ok() || answer->size() <= MeetingLimits::kAnswer, "an answer is short");
  std::string bytes(1, answer.ok() ? kTakesPlace : kRefused);
  bytes += answer.ok() ? *answer : std::string(answer.status().message()).substr(0, MeetingLimits::kAnswer);
  {
    const std::lock_guard lock(mutex_);
    if (std::ranges::count(answers_, meeting, [](const auto& entry) { return entry.first; }) > 0) return;
    if (answers_.size() >= MeetingLimits::kAnswers) answers_.pop_front();
    answers_.emplace_back(meeting, std::move(bytes));
  }
  Wake();
}

void MeetingPlace::Serve() {
  std::vector<Guest> guests;
  while (Step(guests)) {
  }
}

// One round of poll. False when the place is to end.
bool MeetingPlace::Step(std::vector<Guest>& guests) {
  Time now = SteadyNow();
  std::vector<pollfd> entries{{wake_.get(), POLLIN, 0}, {acceptor_.fd(now), POLLIN, 0}};
  Time next = std::min(now + std::chrono::hours(1), acceptor_.wakes(now));
  for (const Guest& guest : guests) {
    entries.push_back({guest.connection.fd(), POLLIN, 0});
    next = std::min(next, guest.until);
  }
  if (poll(entries.data(), entries.size(), PollMillis(next)) < 0 && errno != EINTR) return false;
  if (entries[0].revents != 0) {
    std::uint64_t rings = 0;
    (void)!read(wake_.get(), &rings, sizeof(rings));
    const std::lock_guard lock(mutex_);
    if (stopping_) return false;
  }
  now = SteadyNow();
  std::vector<Guest> stay;
  for (std::size_t i = 0; i < guests.size(); ++i) {
    if (entries[i + 2].revents != 0 && !Hear(guests[i], now)) continue;
    if (Tell(guests[i])) continue;
    if (guests[i].until > now) {
      stay.push_back(std::move(guests[i]));
    } else if (guests[i].meeting.empty()) {
      acceptor_.refusals().Count(SocketRefusal::kSilent);
    }
  }
  guests = std::move(stay);
  if (entries[1].revents != 0) Accept(guests, now);
  Count(guests);
  return true;
}

// A guest that has not said what it wants makes room first, then the guest that waits for the longest time.
void MeetingPlace::Accept(std::vector<Guest>& guests, Time now) {
  std::optional<UnixConnection> connection = acceptor_.Accept(now);
  if (!connection) return;
  if (guests.size() >= MeetingLimits::kGuests) {
    acceptor_.refusals().Count(SocketRefusal::kCrowdedOut);
    guests.erase(std::ranges::min_element(
        guests, {}, [](const Guest& guest) { return std::pair(!guest.meeting.empty(), guest.until); }));
  }
  guests.push_back({*std::move(connection), now + MeetingLimits::kQuestion, {}, {}});
}

bool MeetingPlace::Understand(Guest& guest, const std::string& question) {
  const std::size_t name = question.find(kNameEnds);
  if (name == std::string::npos || name == 0 || name > MeetingLimits::kName ||
      question.size() - name - 1 > MeetingLimits::kOffer)
    return false;
  guest.meeting = question.substr(0, name);
  guest.offer = question.substr(name + 1);
  return true;
}

// False when the guest has left, or says what makes no sense.
bool MeetingPlace::Hear(Guest& guest, Time now) {
  const absl::StatusOr<SocketMessage> said = guest.connection.Receive(Duration::zero());
  if (absl::IsUnavailable(said.status())) return false;
  if (!said.ok() || !said->descriptors.empty() || !guest.meeting.empty() || said->bytes.size() < 2 ||
      said->bytes[0] != kQuestion || !Understand(guest, said->bytes.substr(1))) {
    acceptor_.refusals().Count(SocketRefusal::kBrokenMessage);
    return false;
  }
  guest.until = now + MeetingLimits::kGuest;
  return true;
}

// Whether it was answered, or cannot be.
bool MeetingPlace::Tell(Guest& guest) {
  std::string answer;
  {
    const std::lock_guard lock(mutex_);
    const auto found =
        std::ranges::find(answers_, guest.meeting, [](const auto& entry) { return entry.first; });
    if (found == answers_.end()) return false;
    answer = found->second;
  }
  // A guest that does not read learns nothing.
  guest.connection.Send(answer, {}, Duration::zero()).IgnoreError();
  return true;
}

void MeetingPlace::Count(const std::vector<Guest>& guests) {
  std::map<std::string, std::vector<std::string>> waiting;
  for (const Guest& guest : guests)
    if (!guest.meeting.empty()) waiting[guest.meeting].push_back(guest.offer);
  const std::lock_guard lock(mutex_);
  if (waiting == waiting_) return;
  waiting_ = std::move(waiting);
  came_.notify_all();
}

absl::StatusOr<std::string> AttendMeeting(const std::string& path, const std::string& meeting,
                                          const std::string& offer, Duration timeout) {
  if (meeting.empty() || meeting.size() > MeetingLimits::kName ||
      meeting.find(kNameEnds) != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("a meeting's name has ", meeting.size(),
                                                   " bytes: must be 1 to ", MeetingLimits::kName,
                                                   ", and none of them zero"));
  }
  if (offer.size() > MeetingLimits::kOffer) {
    return absl::InvalidArgumentError(absl::StrCat("what is brought to a meeting has ", offer.size(),
                                                   " bytes: must be at most ", MeetingLimits::kOffer));
  }
  const Time deadline = SteadyNow() + timeout;
  TROUPE_ASSIGN_OR_RETURN(UnixConnection connection, ConnectUnix(path, timeout));
  const std::string question =
      absl::StrCat(std::string(1, kQuestion), meeting, std::string(1, kNameEnds), offer);
  TROUPE_RETURN_IF_ERROR(connection.Send(question, {}, deadline - SteadyNow()));
  TROUPE_ASSIGN_OR_RETURN(const SocketMessage answer, connection.Receive(deadline - SteadyNow()));
  if (answer.bytes[0] == kTakesPlace) return answer.bytes.substr(1);
  return absl::UnavailableError(
      absl::StrCat("meeting ", meeting, " does not take place: ", answer.bytes.substr(1)));
}

}  // namespace troupe::transport
