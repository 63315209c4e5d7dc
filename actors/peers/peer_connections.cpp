#include "actors/peers/peer_connections.hpp"

#include <sys/socket.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace troupe::actors {

PeerConnections::Ticket::Ticket(Ticket&& other) noexcept
    : owner_(std::exchange(other.owner_, nullptr)), finished_(other.finished_), place_(other.place_) {}

PeerConnections::Ticket::~Ticket() {
  if (owner_ == nullptr) return;
  Finish();
  const std::lock_guard lock(owner_->mutex_);
  --owner_->accepted_;
}

void PeerConnections::Ticket::Finish() {
  if (owner_ == nullptr || std::exchange(finished_, true)) return;
  const std::lock_guard lock(owner_->mutex_);
  owner_->waiting_.erase(place_);
}

PeerConnections::Ticket PeerConnections::Accept(int fd, const std::string& peer, Time now) {
  Ticket ticket;
  const std::lock_guard lock(mutex_);
  if (accepted_ >= kAccepted) {
    Count("too_many", peer, absl::StrCat("there are ", kAccepted, " connections already"), now);
    return ticket;
  }
  // The oldest one has had the longest time for its handshake, which takes a peer milliseconds.
  if (waiting_.size() >= kUnfinished) {
    ::shutdown(waiting_.front().fd, SHUT_RDWR);
    Count("crowded_out", peer,
          absl::StrCat(kUnfinished, " connections without a handshake are open, and the oldest is closed"),
          now);
    // It ends its own ticket; until then it counts as the newest, so that the next one in age goes first.
    waiting_.splice(waiting_.end(), waiting_, waiting_.begin());
  }
  ticket.owner_ = this;
  ticket.place_ = waiting_.insert(waiting_.end(), {fd, now});
  ++accepted_;
  return ticket;
}

void PeerConnections::Sweep(Time now) {
  const std::lock_guard lock(mutex_);
  for (auto& waiting : waiting_) {
    if (now - waiting.since < kHandshake) continue;
    waiting.since = now;  // it is told once
    ::shutdown(waiting.fd, SHUT_RDWR);
    Count("slow_handshake", "a connection",
          absl::StrCat("it did not end its handshake within ", FormatDuration(kHandshake)), now);
  }
}

void PeerConnections::Refuse(const std::string& reason, const std::string& peer, const std::string& why,
                             Time now) {
  const std::lock_guard lock(mutex_);
  Count(reason, peer, why, now);
}

void PeerConnections::Count(const std::string& reason, const std::string& peer, const std::string& why,
                            Time now) {
  ++refused_[reason];
  last_ = absl::StrCat("the connection with ", peer, " was closed: ", why);
  if (!log_) return;
  if (logged_ != Time::min() && now - logged_ < kBetweenLines) {
    ++unlogged_;
    return;
  }
  logged_ = now;
  auto line = absl::StrCat("a connection with ", peer, " was closed: ", why);
  if (const auto others = std::exchange(unlogged_, 0); others > 0)
    absl::StrAppend(&line, " (and ", others, " others before it that are not listed)");
  log_(line);
}

std::map<std::string, std::uint64_t> PeerConnections::refused() const {
  const std::lock_guard lock(mutex_);
  return refused_;
}

std::string PeerConnections::last_refusal() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

std::size_t PeerConnections::accepted() const {
  const std::lock_guard lock(mutex_);
  return accepted_;
}

std::size_t PeerConnections::unfinished() const {
  const std::lock_guard lock(mutex_);
  return waiting_.size();
}

}  // namespace troupe::actors
