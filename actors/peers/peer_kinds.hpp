// PEER KINDS: by which message an actor of another process is known to be a manager, a node or a gateway.
#pragma once

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <string_view>

#include "security/identity.hpp"

namespace troupe::actors {

struct PeerKind {
  std::string_view mark;  // a message that actors of this kind alone take, in every release
  security::Roles roles;  // that its process has
  std::string_view purpose;
};
inline constexpr std::array<PeerKind, 3> kPeerKinds = {
    {{"troupe.proto.Heartbeat", security::Roles{security::Role::kManager}, "be a cluster manager"},
     {"troupe.proto.AdoptModel", security::Roles{security::Role::kNode}, "be a node"},
     {"troupe.proto.ContinueRun", security::Roles{security::Role::kGateway}, "be a gateway"}}};

// Whether one of these operations, by CAF's names of them, has the message.
[[nodiscard]] inline bool Takes(const std::set<std::string>& operations, std::string_view message) {
  return std::ranges::any_of(operations, [message](const std::string& operation) {
    return operation.find(message) != std::string::npos;
  });
}

}  // namespace troupe::actors
