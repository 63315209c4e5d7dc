#include "gateway/http_pace.hpp"

#include <algorithm>

namespace troupe::gateway {

HttpPace::HttpPace(const HttpServerOptions& options, bool probes_only, SteadyTime now)
    : options_(options), probes_only_(probes_only), entered_(now), moved_(now) {}

void HttpPace::Enter(HttpState state, std::uint64_t transferred, SteadyTime now) {
  moved_ = now;
  if (state != state_) entered_ = now;
  state_ = state;
  transferred_ = transferred;
  SetDeadline(false);
}

void HttpPace::SetDeadline(bool is_short) {
  Duration allowed = is_short ? options_.short_transfer_timeout : options_.transfer_timeout;
  if (state_ == HttpState::kIdle) allowed = options_.idle_timeout;
  if (state_ == HttpState::kHead) allowed = options_.head_timeout;
  if (state_ == HttpState::kHandshake && !is_short) allowed = options_.handshake_timeout;
  if (probes_only_) allowed = std::min<Duration>(allowed, std::chrono::seconds(1));
  if (state_ == HttpState::kLingering) allowed = std::chrono::seconds(1);
  // Bytes that moved fast buy no time to stand still in.
  const auto still = moved_ + std::chrono::duration_cast<SteadyTime::duration>(allowed);
  if (options_.slowest.value > 0) allowed += TransferTime(Bytes(transferred_), options_.slowest);
  deadline_ = state_ == HttpState::kWaiting || state_ == HttpState::kClosed
                  ? SteadyTime::max()
                  : std::min(still, entered_ + std::chrono::duration_cast<SteadyTime::duration>(allowed));
}

}  // namespace troupe::gateway
