// SEQUENCE CLIENTS: each goes through a sequence of requests to a function with state, at any gateway, one after the other:
//
//   begins -(it has heard so)-> asks again and again -> ends
//
// What was refused is asked again. Where a client does not know whether its sequence has begun, it begins no other request.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/random.hpp"
#include "sim/workloads/client_load.hpp"
#include "sim/workloads/request_clients.hpp"

namespace troupe::sim {

class SequenceClients {
 public:
  // Both outlive these clients. `function`: whom they ask; empty: those with state that are never removed.
  SequenceClients(ClientLoad& load, RequestClients& requests, std::string function = {})
      : load_(load), requests_(requests), function_(std::move(function)), random_(kSeed + function_.size()) {}
  void Loop();

 private:
  struct Chat {
    std::string function{};
    std::string id{};
    std::uint64_t left = 0;  // requests that are not answered well yet
    bool begun = false;
    std::uint32_t tries = 0;  // of the next request
  };
  void Ask(Chat chat);
  void Answered(Chat chat, absl::StatusCode code);

  static constexpr std::uint64_t kSeed = 0x5e90e;

  ClientLoad& load_;
  RequestClients& requests_;
  const std::string function_;
  Random random_;  // of their own, so that all others do what they would do without them
  std::uint64_t chats_ = 0;
};

}  // namespace troupe::sim
