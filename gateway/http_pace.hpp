// HTTP PACE: what one connection does, and how long it may go on with it. Time is passed in; no socket is
// touched.
#pragma once

#include <chrono>
#include <cstdint>

#include "gateway/http_server.hpp"

namespace troupe::gateway {

// [handshake ->] idle -> head -> body -> waiting -> writing -> idle ... -> closed; lingering -> closed after
// an early refusal.
enum class HttpState { kHandshake, kIdle, kHead, kBody, kWaiting, kWriting, kLingering, kClosed };

class HttpPace {
 public:
  using SteadyTime = std::chrono::steady_clock::time_point;

  // The options outlive the pace. `probes_only`: the connection is one beyond what the server may have, and
  // gets little time.
  HttpPace(const HttpServerOptions& options, bool probes_only, SteadyTime now);

  // The connection is in `state`, in which `transferred` bytes of the body or the answer have moved so far.
  // Entering the state that it is in means that bytes have moved.
  void Enter(HttpState state, std::uint64_t transferred, SteadyTime now);
  // Memory is short: until the next Enter a transfer gets little time.
  void Shorten() { SetDeadline(true); }
  [[nodiscard]] bool IsLate(SteadyTime now) const { return now >= deadline_; }
  // The client did not send its request in time, and is to be told so.
  void GiveUp() { timed_out_ = true; }

  [[nodiscard]] HttpState state() const { return state_; }
  [[nodiscard]] bool closed() const { return state_ == HttpState::kClosed; }
  [[nodiscard]] SteadyTime entered() const { return entered_; }  // when `state` began
  [[nodiscard]] std::uint64_t transferred() const { return transferred_; }
  [[nodiscard]] bool timed_out() const { return timed_out_; }
  [[nodiscard]] bool probes_only() const { return probes_only_; }

 private:
  void SetDeadline(bool is_short);

  const HttpServerOptions& options_;
  const bool probes_only_;
  HttpState state_ = HttpState::kIdle;
  SteadyTime entered_;
  SteadyTime moved_;  // when bytes moved last
  std::uint64_t transferred_ = 0;
  SteadyTime deadline_ = SteadyTime::max();
  bool timed_out_ = false;
};

}  // namespace troupe::gateway
