#include "gpu/worker/handshakes.hpp"

namespace troupe::gpu {

void Handshakes::Accept(Time now) {
  std::optional<transport::UnixConnection> connection = acceptor_.Accept(now);
  if (!connection) return;
  // A daemon says hello as it connects, so the oldest connection has had the longest time for it.
  if (waiting_.size() >= most_) {
    refusals_->Count(transport::SocketRefusal::kCrowdedOut);
    waiting_.erase(waiting_.begin());
  }
  waiting_.push_back({*std::move(connection), now + patience_});
}

void Handshakes::EndSilent(Time now) {
  const auto ended = std::erase_if(waiting_, [now](const Waiting& one) { return one.deadline <= now; });
  for (std::size_t i = 0; i < ended; ++i) refusals_->Count(transport::SocketRefusal::kSilent);
}

std::optional<Handshakes::Hello> Handshakes::Take(std::size_t at) {
  transport::UnixConnection connection = std::move(waiting_[at].connection);
  waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(at));
  absl::StatusOr<transport::SocketMessage> message = connection.Receive(Duration(0));
  if (message.ok()) return Hello{std::move(connection), *std::move(message)};
  // An end without a word is nothing to count.
  if (!absl::IsUnavailable(message.status())) refusals_->Count(transport::SocketRefusal::kBrokenMessage);
  return std::nullopt;
}

}  // namespace troupe::gpu
