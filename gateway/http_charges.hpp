// HTTP CHARGES: what one connection holds of the server's budgets, in the name of its client's address.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gateway/http_message.hpp"
#include "gateway/http_pace.hpp"
#include "gateway/transfer_budget.hpp"

namespace troupe::gateway {

// What all connections of a server have together. Thread-safe.
struct HttpBudgets {
  explicit HttpBudgets(const HttpServerOptions& o)
      : bodies({o.max_inflight, o.max_inflight_client}),
        answers({o.max_answers, o.max_answers_client}),
        handshakes({Bytes(o.max_handshakes), Bytes(o.max_handshakes_client)}) {}
  TransferBudget bodies;      // of the requests under way
  TransferBudget answers;     // that wait for their readers
  TransferBudget handshakes;  // of TLS under way: one unit each
};

// What is charged has to be returned: the owner calls ReturnAll at the end of each request and handshake.
// Where a function gives a response, that is the refusal: the budget is full.
class HttpCharges {
 public:
  using SteadyTime = TransferBudget::SteadyTime;

  // The budgets outlive the charges. `client`: what they know the client by.
  HttpCharges(HttpBudgets& budgets, std::string client) : budgets_(budgets), client_(std::move(client)) {}

  // Whether a request can be taken, without charging anything: a request whose answer could not be kept for
  // its client is not computed.
  [[nodiscard]] std::optional<HttpResponse> Look(bool has_body) const;
  // `held` bytes of the request's body are in memory, or will be after the next read.
  [[nodiscard]] std::optional<HttpResponse> HoldBody(std::uint64_t held, SteadyTime now);
  // What waits for its reader is charged before a byte of it is sent: an answer that does not fit can still
  // be refused. Small answers are not charged.
  [[nodiscard]] std::optional<HttpResponse> HoldAnswer(std::uint64_t length, SteadyTime now);
  // False when too many handshakes are under way.
  [[nodiscard]] bool BeginHandshake(SteadyTime now);
  void ReturnAll();

  // The budget of what moves in this state has refused bytes during the last second.
  [[nodiscard]] bool IsShort(HttpState state, SteadyTime now) const;

 private:
  HttpBudgets& budgets_;
  const std::string client_;
  std::uint64_t body_ = 0;
  std::uint64_t answer_ = 0;
  std::uint64_t handshake_ = 0;
};

}  // namespace troupe::gateway
