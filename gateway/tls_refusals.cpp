#include "gateway/tls_refusals.hpp"

#include <spdlog/spdlog.h>

#include <string>

#include "gateway/text.hpp"

namespace troupe::gateway {

namespace {
constexpr std::chrono::seconds kBetweenLines{1};
}  // namespace

std::string_view TlsRefusalName(TlsRefusal reason) {
  switch (reason) {
    case TlsRefusal::kPlainHttp:
      return "plain_http";
    case TlsRefusal::kSlow:
      return "slow";
    case TlsRefusal::kTooMany:
      return "too_many";
    default:
      return "failed";
  }
}

void TlsRefusals::Count(TlsRefusal reason, std::string_view client, std::string_view why, SteadyTime now) {
  counts_[static_cast<std::size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
  std::string line;
  {
    const std::lock_guard lock(mutex_);
    if (logged_ != SteadyTime::min() && now - logged_ < kBetweenLines) {
      ++unlogged_;
      return;
    }
    logged_ = now;
    line = Cat("https: a connection of ", client, " was closed in its handshake: ", why);
    if (unlogged_ > 0) Append(line, " (", unlogged_, " more since the line before)");
    unlogged_ = 0;
  }
  spdlog::warn("{}", line);
}

TlsRefusals::Counts TlsRefusals::counts() const {
  Counts counts{};
  for (std::size_t i = 0; i < kTlsRefusals; ++i) counts[i] = counts_[i].load(std::memory_order_relaxed);
  return counts;
}

}  // namespace troupe::gateway
