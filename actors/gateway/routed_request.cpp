#include "actors/gateway/routed_request.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/wire_status.hpp"
#include "cluster/function_table.hpp"
#include "proto/gpu_sharing.hpp"

namespace troupe::actors {

absl::Status MayServe(const proto::FunctionRecord& function, const proto::InferRequest& message,
                      const ServableModels& servable) {
  if (!function.problem().empty() && !servable.Has(function.model_digest()))
    return absl::UnavailableError(absl::StrCat(cluster::Describe(function.key()), " ", function.problem()));
  if (!message.has_sequence() || !function.state().empty()) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "sequence_id '", message.sequence().id(), "' was given, and ", cluster::Describe(function.key()),
      " keeps nothing from one request to the next; leave it out, or deploy the function with 'state'"));
}

RoutedRequest RoutedFor(const proto::FunctionRecord& function, proto::InferRequest message,
                        RouterClient::Done done, Time now) {
  return {.message = std::move(message),
          .done = std::move(done),
          .caller = {},
          .model = function.model_digest(),
          .has_state = !function.state().empty(),
          .deployed_unix_ns = function.deployed_unix_ns(),
          .is_scaled = proto::IsScaled(function.sharing()),
          .arrived = now,
          .deadline = Duration(function.slo().deadline_ns()),
          .percentile = function.slo().percentile()};
}

proto::SubmitRequest SubmitFor(const RoutedRequest& request, const cluster::Send& send) {
  const auto& message = request.message;
  proto::SubmitRequest submit;
  submit.mutable_id()->set_sequence(send.ticket);
  *submit.mutable_function() = message.function();
  submit.set_model_digest(request.model);
  // The inputs stay here too: the request may have to be sent again.
  *submit.mutable_inputs() = message.inputs();
  *submit.mutable_outputs() = message.outputs();
  *submit.mutable_keep() = message.keep();
  submit.set_deadline_in_ns(send.deadline_in.count());
  submit.set_slo_percentile(send.percentile);
  submit.set_timeout_in_ns(send.timeout_in.count());
  submit.set_priority(message.priority());
  submit.set_node_epoch(send.node_epoch);
  submit.set_workflow(message.workflow());
  if (request.has_state) submit.set_deployed_unix_ns(request.deployed_unix_ns);
  if (message.has_sequence()) *submit.mutable_sequence() = message.sequence();
  if (send.gpu) submit.set_gpu(*send.gpu);
  return submit;
}

std::vector<proto::FunctionKey> RemovedOf(const std::map<std::uint64_t, RoutedRequest>& requests,
                                          const cluster::ClusterView& view) {
  std::map<std::pair<std::string, std::string>, proto::FunctionKey> removed;
  for (const auto& [sequence, request] : requests) {
    const auto& key = request.message.function();
    if (!view.functions().FindServed(key).ok()) removed[{key.name(), key.version()}] = key;
  }
  std::vector<proto::FunctionKey> keys;
  for (auto& [name, key] : removed) keys.push_back(std::move(key));
  return keys;
}

proto::InferReply ReplyTo(const cluster::RequestFinished& finished, RoutedRequest& request) {
  using End = cluster::RequestEnd;
  proto::InferReply reply = std::move(request.reply);
  const bool from_node = finished.end == End::kServed || (finished.end == End::kFailed && reply.code() != 0);
  if (!from_node) {
    reply.Clear();
    SetStatus(finished.status, reply);
    reply.set_retry_after_ns(finished.retry_after.count());
  }
  // A node that was lost, or that has not answered yet, may have run the request. A node that has answered says so itself.
  if (request.has_state && reply.code() != 0 && finished.attempts > from_node) reply.set_state_advanced(true);
  *reply.mutable_function() = request.message.function();
  reply.set_attempts(std::max(reply.attempts(), finished.attempts));
  return reply;
}

Bytes InlineBytes(const proto::InferRequest& request) {
  std::uint64_t sum = 0;
  for (const auto& input : request.inputs()) sum += input.data().inlined().size();
  return Bytes(sum);
}

proto::RouterHello HelloOf(const cluster::RequestTable& table, const std::string& node) {
  proto::RouterHello hello;
  if (const auto* const known = table.credits().Find(node)) {
    hello.set_known_epoch(known->epoch);
    hello.set_known_grant(known->grant);
  }
  hello.set_queued(table.waiting());
  hello.set_names_gpus(table.names_gpus());
  return hello;
}

proto::MemberReport ReportOf(const cluster::RequestTable& table, cluster::FunctionArrivals& arrivals,
                             bool joining) {
  const auto& counts = table.counts();
  proto::MemberReport report;
  auto& load = *report.mutable_load();
  load.set_queued(table.waiting());
  load.set_running(table.sent());
  load.set_served(counts.served);
  load.set_failed(counts.failed + counts.rejected + counts.expired);
  load.set_retried(counts.retried);
  // What came while the manager heard nothing is of no known time.
  auto demand = arrivals.Take(table);
  if (!joining) *report.mutable_function_demand() = std::move(demand);
  return report;
}

cluster::EndedRequest EndedFor(const RoutedRequest& request, const proto::InferReply& reply, Time now,
                               double alpha) {
  return {.reply = reply,
          .took = now - request.arrived,
          .deadline = request.deadline,
          .percentile = request.percentile,
          .alpha = alpha,
          .id = request.message.client_id()};
}

}  // namespace troupe::actors
