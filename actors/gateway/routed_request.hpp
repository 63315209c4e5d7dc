// A request as the router keeps it until its caller has the answer.
#pragma once

#include <cstdint>
#include <string>

#include "actors/gateway/router.hpp"
#include "base/units.hpp"
#include "proto/request.pb.h"

namespace troupe::actors {

struct RoutedRequest {
  proto::InferRequest message;
  RouterClient::Done done;
  std::string model;       // digest of its function's model
  bool has_state = false;  // its function keeps state from run to run
  Time arrived{};
  std::uint64_t ticket = 0;  // of its last sending: the id under which a node knows it
  proto::InferReply reply;   // of the node, once there is one
};

}  // namespace troupe::actors
