#include "cluster/requests/request_order.hpp"

#include "base/check.hpp"

namespace troupe::cluster {

RequestOrder::RequestOrder(OrderingPolicy ordering) : ordering_(ordering) {
  TROUPE_CHECK(ordering_.rank != nullptr, "every slot of the router needs a policy");
  if (ordering_.slo != nullptr) slo_.emplace(*ordering_.slo);
  if (ordering_.late != nullptr) late_.emplace(*ordering_.late);
}

void RequestOrder::Begin(RequestEntry& entry, Time now) {
  const auto& request = entry.request;
  entry.key = MakeOrderingKey(
      ordering_, {.priority = request.priority, .arrival = now, .deadline = entry.deadline}, next_++);
  if (!late_) return;
  const auto run = request.profiled.shortest > Duration::zero() ? request.profiled.shortest
                                                                : costs_.RunTime(request.model);
  entry.latest = LatestBegin(entry.deadline, run, now);
  if (entry.deadline != Time::max() && late_->Yields(request.function)) entry.key = LateKey(entry.key);
}

void RequestOrder::Enter(RequestEntry& entry) {
  if (slo_) entry.key.place = slo_->PlaceOf(entry.request.function);
  if (late_) late_->Add(entry.key, entry.latest, entry.request.sequence);
}

void RequestOrder::Leave(const RequestEntry& entry) {
  if (late_) late_->Remove(entry.key, entry.latest);
}

// Requests that are wrong in themselves say nothing about how the function is served.
void RequestOrder::Ended(const RequestEntry& entry, const absl::Status& status, Time now) {
  if (absl::IsInvalidArgument(status) || absl::IsCancelled(status)) return;
  const auto& request = entry.request;
  const bool in_time = status.ok() && now <= entry.deadline;
  if (slo_) slo_->Ended(request.function, request.percentile, in_time, now - entry.arrival);
  if (late_ && entry.deadline != Time::max()) late_->Ended(request.function, request.percentile, in_time);
}

void RequestOrder::ObserveRun(const std::string& model, Duration run) {
  if (late_ && run > Duration::zero()) costs_.ObserveRun(model, run);
}

bool RequestOrder::Moved(const RequestEntry& entry) const {
  return slo_ && slo_->PlaceOf(entry.request.function) != entry.key.place;
}

std::optional<std::uint64_t> RequestOrder::NextLate(Time now) const {
  return late_ ? late_->NextLate(now) : std::nullopt;
}

std::optional<std::uint64_t> RequestOrder::Gone(const RequestEntry& sent) {
  return late_ ? late_->Gone(sent.key) : std::nullopt;
}

std::optional<std::size_t> RequestOrder::CountLate() const {
  return late_ ? std::optional(late_->late()) : std::nullopt;
}

}  // namespace troupe::cluster
