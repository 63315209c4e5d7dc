#include "cluster/slo/slo_tracker.hpp"

#include <algorithm>

#include "absl/status/status.h"
#include "cluster/slo/step_trace.hpp"
#include "proto/slo_counts.hpp"
#include "scheduling/slo_count.hpp"

namespace troupe::cluster {

namespace {

constexpr Duration kSlotLength = std::chrono::minutes(5);
constexpr Duration kMinute = std::chrono::minutes(1);

std::int64_t NumberOf(Time now, Duration length) {
  return now.time_since_epoch() / length;
}

void Count(const EndedRequest& request, proto::SloCounts& counts) {
  if (InTime(request)) return counts.set_in_time(counts.in_time() + 1);
  const int code = request.reply.code();
  const bool timed_out = code == static_cast<int>(absl::StatusCode::kDeadlineExceeded);
  if (code != 0 && !timed_out) return counts.set_failed(counts.failed() + 1);
  switch (CauseOf(request.reply, request.took)) {
    case LateCause::kQueue:
      return counts.set_late_queue(counts.late_queue() + 1);
    case LateCause::kSwap:
      return counts.set_late_swap(counts.late_swap() + 1);
    case LateCause::kRun:
      return counts.set_late_run(counts.late_run() + 1);
    case LateCause::kNetwork:
      return counts.set_late_network(counts.late_network() + 1);
  }
}

}  // namespace

bool Slower(const proto::RequestTimeline& a, const proto::RequestTimeline& b) {
  return a.took_ns() > b.took_ns();
}

bool BeganBefore(const proto::RequestTimeline& a, const proto::RequestTimeline& b) {
  return a.ended_unix_ns() - a.took_ns() < b.ended_unix_ns() - b.took_ns();
}

bool InTime(const EndedRequest& request) {
  return request.reply.code() == 0 &&
         (request.deadline == Duration::zero() || request.took <= request.deadline);
}

bool LateForSwap(const EndedRequest& request) {
  const Duration swap(request.reply.times().swap_ns());
  const int code = request.reply.code();
  const bool ran_or_timed_out = code == 0 || code == static_cast<int>(absl::StatusCode::kDeadlineExceeded);
  return ran_or_timed_out && !InTime(request) && swap > Duration::zero() &&
         request.took - swap <= request.deadline;
}

LateCause CauseOf(const proto::InferReply& reply, Duration took) {
  const auto& times = reply.times();
  if (reply.node().empty()) return LateCause::kQueue;
  const std::int64_t queue = times.router_queue_ns() + times.node_queue_ns();
  const std::int64_t network = took.count() - queue - times.swap_ns() - times.compute_ns();
  const std::int64_t longest = std::max({queue, times.swap_ns(), times.compute_ns(), network});
  if (longest == queue) return LateCause::kQueue;
  if (longest == times.swap_ns()) return LateCause::kSwap;
  return longest == times.compute_ns() ? LateCause::kRun : LateCause::kNetwork;
}

bool CountsForSlo(int code) {
  using Code = absl::StatusCode;
  switch (static_cast<Code>(code)) {
    case Code::kCancelled:
    case Code::kInvalidArgument:
    case Code::kNotFound:
    case Code::kUnimplemented:
    case Code::kPermissionDenied:
      return false;
    default:
      return true;
  }
}

void SloTracker::Ended(const EndedRequest& request, Time now) {
  if (!CountsForSlo(request.reply.code())) return;
  auto& function = FunctionOf(request.reply.function());
  function.last = ++ends_;
  alpha_ = request.alpha;
  function.deadline = request.deadline;
  function.percentile = request.percentile > 0 ? request.percentile : kDefaultSloPercentile;
  Count(request, function.total);
  Count(request, function.SlotOf(NumberOf(now, kSlotLength)).counts);
  KeepIfSlow(request, now);
  if (request.id.empty()) return;
  with_id_.push_back(TimelineOf(request));
  if (with_id_.size() > kWithId) with_id_.pop_front();
}

SloTracker::Slot& SloTracker::Function::SlotOf(std::int64_t number) {
  auto& slot = slots[static_cast<std::size_t>((number % kSlots + kSlots) % kSlots)];
  if (slot.number != number) slot = {number, {}};
  return slot;
}

SloTracker::Function& SloTracker::FunctionOf(const proto::FunctionKey& key) {
  const std::pair<std::string_view, std::string_view> name(key.name(), key.version());
  if (const auto it = functions_.find(name); it != functions_.end()) return it->second;
  if (functions_.size() >= kMostFunctions) {
    functions_.erase(std::min_element(functions_.begin(), functions_.end(), [](const auto& a, const auto& b) {
      return a.second.last < b.second.last;
    }));
  }
  return functions_[Key(name)];
}

void SloTracker::KeepIfSlow(const EndedRequest& request, Time now) {
  const std::int64_t number = NumberOf(now, kMinute);
  auto& minute = minutes_[static_cast<std::size_t>(number % 2)];
  if (minute.number != number) minute = {number, {}};
  auto& heap = minute.slowest;
  if (heap.size() >= kSlowest) {
    if (request.took.count() <= heap.front().took_ns()) return;
    std::pop_heap(heap.begin(), heap.end(), Slower);
    heap.pop_back();
  }
  heap.push_back(TimelineOf(request));
  std::push_heap(heap.begin(), heap.end(), Slower);
}

proto::RequestTimeline SloTracker::TimelineOf(const EndedRequest& request) const {
  const auto& reply = request.reply;
  proto::RequestTimeline timeline;
  timeline.set_id(std::string(request.id.substr(0, kLongestId)));
  timeline.set_gateway(gateway_);
  *timeline.mutable_function() = reply.function();
  timeline.set_ended_unix_ns(request.unix_ns);
  timeline.set_took_ns(request.took.count());
  timeline.set_deadline_ns(request.deadline.count());
  *timeline.mutable_times() = reply.times();
  *timeline.mutable_story() = reply.story();
  timeline.set_attempts(reply.attempts());
  timeline.set_node(reply.node());
  timeline.set_gpu(reply.gpu());
  timeline.set_code(reply.code());
  timeline.set_message(reply.message());
  return timeline;
}

proto::FunctionSlo SloTracker::SloOf(const Key& key, const Function& function, Time now) const {
  proto::FunctionSlo slo;
  slo.mutable_function()->set_name(key.first);
  slo.mutable_function()->set_version(key.second);
  slo.set_deadline_ns(function.deadline.count());
  slo.set_percentile(function.percentile);
  *slo.mutable_total() = function.total;
  const std::int64_t oldest = NumberOf(now, kSlotLength) - kSlots + 1;
  for (const auto& slot : function.slots)
    if (slot.number >= oldest) proto::AddCounts(slot.counts, *slo.mutable_hour());
  return slo;
}

proto::KeptSlos SloTracker::Keep(Time now, std::int64_t unix_ns) const {
  proto::KeptSlos kept;
  kept.set_unix_ns(unix_ns);
  const std::int64_t newest = NumberOf(now, kSlotLength);
  for (const auto& [key, function] : functions_) {
    auto& one = *kept.add_functions();
    *one.mutable_slo() = SloOf(key, function, now);
    one.mutable_slo()->clear_hour();
    for (const auto& slot : function.slots) {
      if (slot.number <= newest - kSlots) continue;
      one.add_slots()->set_age_ns((now.time_since_epoch() - slot.number * kSlotLength).count());
      *one.mutable_slots(one.slots_size() - 1)->mutable_counts() = slot.counts;
    }
  }
  return kept;
}

void SloTracker::Restore(const proto::KeptSlos& kept, Time now, std::int64_t unix_ns) {
  const std::int64_t newest = NumberOf(now, kSlotLength);
  // A clock that was set back makes nothing younger.
  const std::int64_t away = std::max<std::int64_t>(unix_ns - std::max<std::int64_t>(kept.unix_ns(), 0), 0);
  for (const auto& one : kept.functions()) {
    if (functions_.size() >= kMostFunctions) return;
    auto& function = FunctionOf(one.slo().function());
    function.deadline = Duration(one.slo().deadline_ns());
    function.percentile = one.slo().percentile();
    proto::AddCounts(one.slo().total(), function.total);
    for (const auto& slot : one.slots()) {
      // Halves, so that no sum is too large.
      const std::int64_t slots_ago =
          (std::max<std::int64_t>(slot.age_ns(), 0) / 2 + away / 2) / (kSlotLength.count() / 2);
      if (slots_ago < kSlots) proto::AddCounts(slot.counts(), function.SlotOf(newest - slots_ago).counts);
    }
  }
}

proto::GatewayDescription SloTracker::Describe(const proto::DescribeGateway& ask, Time now) const {
  proto::GatewayDescription out;
  if (!ask.requests()) {
    out.set_gateway(gateway_);
    out.set_alpha(alpha_);
    for (const auto& [key, function] : functions_) *out.add_functions() = SloOf(key, function, now);
    return out;
  }
  std::vector<const proto::RequestTimeline*> found;
  const auto id = ask.id().substr(0, kLongestId);
  for (const auto& request : with_id_)
    if (!id.empty() && (request.id() == id || IsTracedBy(request.id(), id))) found.push_back(&request);
  const std::int64_t number = NumberOf(now, kMinute);
  for (const auto& minute : minutes_) {
    if (!id.empty() || minute.number < number - 1) continue;
    for (const auto& request : minute.slowest) found.push_back(&request);
  }
  const auto before = id.empty() ? Slower : BeganBefore;
  std::stable_sort(found.begin(), found.end(), [&](const auto* a, const auto* b) { return before(*a, *b); });
  found.resize(std::min(found.size(), id.empty() ? kSlowest : kOfOneId));
  for (const auto* request : found) *out.add_requests() = *request;
  return out;
}

}  // namespace troupe::cluster
