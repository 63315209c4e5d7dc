#include "cluster/slo/slo_answers.hpp"

#include <algorithm>
#include <tuple>

#include "cluster/slo/slo_tracker.hpp"
#include "proto/slo_counts.hpp"

namespace troupe::cluster {

namespace {

bool SameKey(const proto::FunctionKey& a, const proto::FunctionKey& b) {
  return a.name() == b.name() && a.version() == b.version();
}

bool Matches(const proto::FunctionKey& wanted, const proto::FunctionKey& key) {
  if (wanted.name().empty()) return true;
  return wanted.name() == key.name() && (wanted.version().empty() || wanted.version() == key.version());
}

void Merge(const proto::FunctionSlo& more, proto::FunctionSlo& slo) {
  if (more.deadline_ns() > 0) slo.set_deadline_ns(more.deadline_ns());
  if (more.percentile() > 0) slo.set_percentile(more.percentile());
  proto::AddCounts(more.total(), *slo.mutable_total());
  proto::AddCounts(more.hour(), *slo.mutable_hour());
}

bool ByName(const proto::FunctionSlo& a, const proto::FunctionSlo& b) {
  return std::forward_as_tuple(a.function().name(), a.function().version()) <
         std::forward_as_tuple(b.function().name(), b.function().version());
}

}  // namespace

void AddAlpha(const std::string& member, double alpha, proto::AdminReply& reply) {
  if (alpha <= 0) return;
  auto& added = *reply.add_alphas();
  added.set_member(member);
  added.set_alpha(alpha);
}

void AddSlos(const proto::GatewayDescription& gateway, const proto::FunctionKey& key,
             proto::AdminReply& reply) {
  auto& slos = *reply.mutable_slos();
  AddAlpha(gateway.gateway(), gateway.alpha(), reply);
  for (const auto& more : gateway.functions()) {
    if (!Matches(key, more.function())) continue;
    const auto at = std::lower_bound(slos.begin(), slos.end(), more, ByName);
    if (at != slos.end() && SameKey(at->function(), more.function())) {
      Merge(more, *at);
      continue;
    }
    const auto place = at - slos.begin();
    *slos.Add() = more;
    std::rotate(slos.begin() + place, slos.end() - 1, slos.end());
  }
}

void AddSlosToFunctions(const proto::GatewayDescription& gateway, proto::AdminReply& reply) {
  for (auto& function : *reply.mutable_functions())
    for (const auto& more : gateway.functions())
      if (SameKey(function.record().key(), more.function())) {
        *function.mutable_slo()->mutable_function() = more.function();
        Merge(more, *function.mutable_slo());
      }
}

void AddTimelines(const proto::GatewayDescription& gateway, const std::string& id, proto::AdminReply& reply) {
  auto& all = *reply.mutable_timelines();
  for (const auto& request : gateway.requests()) *all.Add() = request;
  std::stable_sort(all.begin(), all.end(), id.empty() ? Slower : BeganBefore);
  const auto most = id.empty() ? SloTracker::kSlowest : SloTracker::kOfOneId;
  while (all.size() > static_cast<int>(most)) all.RemoveLast();
}

}  // namespace troupe::cluster
