#include "gateway/http_charges.hpp"

#include <string_view>
#include <utility>

#include "gateway/http_error.hpp"
#include "gateway/text.hpp"

namespace troupe::gateway {
namespace {

using Verdict = TransferBudget::Verdict;

constexpr std::string_view kBodies = "the bodies of the requests under way";
constexpr std::string_view kAnswers = "the answers that wait to be read";
// An answer up to this is not charged: a connection may hold as much anyway.
constexpr std::uint64_t kSmallAnswer = 64 * 1024;

std::optional<HttpResponse> RefusalOf(Verdict verdict, std::string_view what) {
  if (verdict == Verdict::kTaken) return std::nullopt;
  return ErrorResponse(absl::ResourceExhaustedError(
      Cat(what, verdict == Verdict::kClientFull ? " of this client's address" : "",
          " fill the server's memory for them; try again")));
}

}  // namespace

std::optional<HttpResponse> HttpCharges::Look(bool has_body) const {
  if (const auto verdict = budgets_.answers.Look(client_); verdict != Verdict::kTaken)
    return RefusalOf(verdict, kAnswers);
  if (!has_body) return std::nullopt;
  return RefusalOf(budgets_.bodies.Look(client_), kBodies);
}

std::optional<HttpResponse> HttpCharges::HoldBody(std::uint64_t held, SteadyTime now) {
  if (held <= body_) return std::nullopt;
  const auto verdict = budgets_.bodies.Take(client_, held - body_, now);
  if (verdict == Verdict::kTaken) body_ = held;
  return RefusalOf(verdict, kBodies);
}

std::optional<HttpResponse> HttpCharges::HoldAnswer(std::uint64_t length, SteadyTime now) {
  if (length <= kSmallAnswer) return std::nullopt;
  const auto verdict = budgets_.answers.Take(client_, length, now);
  if (verdict == Verdict::kTaken) answer_ = length;
  return RefusalOf(verdict, kAnswers);
}

bool HttpCharges::BeginHandshake(SteadyTime now) {
  if (budgets_.handshakes.Take(client_, 1, now) != Verdict::kTaken) return false;
  handshake_ = 1;
  return true;
}

void HttpCharges::ReturnAll() {
  budgets_.bodies.Return(client_, std::exchange(body_, 0));
  budgets_.answers.Return(client_, std::exchange(answer_, 0));
  budgets_.handshakes.Return(client_, std::exchange(handshake_, 0));
}

bool HttpCharges::IsShort(HttpState state, SteadyTime now) const {
  return (state == HttpState::kBody && budgets_.bodies.IsShort(now)) ||
         (state == HttpState::kWriting && budgets_.answers.IsShort(now)) ||
         (state == HttpState::kHandshake && budgets_.handshakes.IsShort(now));
}

}  // namespace troupe::gateway
