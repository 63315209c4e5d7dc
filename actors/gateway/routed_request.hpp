// A request as the router keeps it until its caller has the answer.
#pragma once

#include <caf/actor_addr.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "actors/gateway/router.hpp"
#include "actors/gateway/servable_models.hpp"
#include "base/units.hpp"
#include "cluster/cluster_view.hpp"
#include "cluster/request_table.hpp"
#include "cluster/requests/function_arrivals.hpp"
#include "proto/cluster.pb.h"
#include "proto/request.pb.h"

namespace troupe::actors {

struct RoutedRequest {
  proto::InferRequest message;
  RouterClient::Done done;
  caf::actor_addr caller{};           // null: a thread
  std::string model;                  // digest of its function's model
  bool has_state = false;             // its function keeps state from run to run
  std::int64_t deployed_unix_ns = 0;  // of its function
  bool is_scaled = false;             // its function's instances follow their load
  Time arrived{};
  Duration deadline{};        // of its function's SLO; zero: none
  double percentile = 0;      // of the SLO; 0: the default
  std::uint64_t ticket = 0;   // of its last sending: the id under which a node knows it
  proto::InferReply reply{};  // of the node, once there is one
};

// Why the function cannot answer it, whatever its nodes do.
[[nodiscard]] absl::Status MayServe(const proto::FunctionRecord& function, const proto::InferRequest& message,
                                    const ServableModels& servable);

// As it begins, for this function.
[[nodiscard]] RoutedRequest RoutedFor(const proto::FunctionRecord& function, proto::InferRequest message,
                                      RouterClient::Done done, Time now);

// What a node is told of it, but for the router's id.
[[nodiscard]] proto::SubmitRequest SubmitFor(const RoutedRequest& request, const cluster::Send& send);

// The functions of requests that are not served any more, each once.
[[nodiscard]] std::vector<proto::FunctionKey> RemovedOf(
    const std::map<std::uint64_t, RoutedRequest>& requests, const cluster::ClusterView& view);

// How the request has ended: what its node has answered, if that was its end.
[[nodiscard]] proto::InferReply ReplyTo(const cluster::RequestFinished& finished, RoutedRequest& request);

// Of the inputs that are in the message.
[[nodiscard]] Bytes InlineBytes(const proto::InferRequest& request);

// What the router tells a node of its queue, and of what it knows of the node, but for its id.
[[nodiscard]] proto::RouterHello HelloOf(const cluster::RequestTable& table, const std::string& node);

// What the manager is told of the router's load, and of the demand since it last asked.
[[nodiscard]] proto::MemberReport ReportOf(const cluster::RequestTable& table,
                                           cluster::FunctionArrivals& arrivals, bool joining);

// How it ended, with `reply`, which outlives what is returned, as the request does; but for the Unix time.
[[nodiscard]] cluster::EndedRequest EndedFor(const RoutedRequest& request, const proto::InferReply& reply,
                                             Time now, double alpha);

}  // namespace troupe::actors
