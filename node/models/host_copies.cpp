#include "node/models/host_copies.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "node/parts.hpp"

namespace troupe::node {

namespace {

constexpr Bytes kPage = KiB(4);  // the region gives out whole pages

Bytes Footprint(std::uint64_t model, std::uint64_t weights) {
  return std::max(AlignUp(Bytes(model), kPage) + AlignUp(Bytes(weights), kPage), kPage);
}

// The most bytes that any form of a copy takes of a host region.
Bytes RegionBytesOf(const proto::FunctionRecord& function) {
  Bytes bytes = Footprint(function.model_bytes(), function.weights_bytes());
  for (const auto& packed : function.packed())
    bytes = std::max(bytes, Footprint(packed.model_bytes(), packed.weights_bytes()));
  return bytes;
}

// True when a later try cannot succeed by itself.
bool Final(const absl::Status& status) {
  return !absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status);
}

}  // namespace

absl::Status HostCopies::Want(const ModelNumber& copy, const proto::FunctionRecord& function) {
  return table_.Want(copy, RegionBytesOf(function));
}

void HostCopies::Read(const ModelNumber& copy) {
  table_.Read(copy, parts_.out.now());
}

void HostCopies::Unread(const ModelNumber& copy) {
  if (table_.Unread(copy, parts_.out.now())) Move();
}

void HostCopies::Move() {
  if (!table_.Busy()) return;
  const auto now = parts_.out.now();
  const auto waited = [this](const ModelNumber& model) { return parts_.scheduler.Waits(model); };
  const auto actions = table_.Decide(now, waited);
  // The scheduler learns first which copies leave, so that it dispatches no request for them.
  for (const auto& [kind, copy] : actions) {
    if (kind == CacheActionKind::kLeave || kind == CacheActionKind::kDrop)
      parts_.scheduler.SetInRegion(copy, false);
  }
  for (const auto& [kind, copy] : actions) {
    if (kind == CacheActionKind::kFetch) Fetch(copy);
    if (kind == CacheActionKind::kLoad) Place(copy);
    if (kind != CacheActionKind::kDrop) continue;
    DropCopy drop;
    drop.drop.set_model_digest(copy->digest.text());
    drop.drop.set_isolation_key(copy->key);
    parts_.out.Add(std::move(drop));
  }
  const auto due = table_.NextDue();
  if (alarm_.Set(due)) parts_.out.WakeAt(Timer::kCopies, due);
}

void HostCopies::OnTimer() {
  alarm_.WentOff(parts_.out.now());
  Move();
}

void HostCopies::Fetch(const ModelNumber& copy) {
  FetchCopy effect{copy.text(), {}};
  if (const auto* model = parts_.models.Find(copy)) *effect.fetch.mutable_function() = model->function;
  parts_.out.Add(std::move(effect));
}

void HostCopies::Place(const ModelNumber& copy) {
  PlaceCopy effect{copy.text(), {}};
  if (const auto* model = parts_.models.Find(copy)) *effect.place.mutable_function() = model->function;
  effect.place.set_isolation_key(copy->key);
  parts_.out.Add(std::move(effect));
}

void HostCopies::On(const CopyFetched& event) {
  const auto copy = parts_.names.FindModel(event.copy);
  table_.FetchDone(copy, event.status, parts_.out.now());
  for (const auto& text : event.wrong) parts_.out.Note("model-range-wrong", text);
  if (!event.status.ok() && Final(event.status)) Failed(copy, event.status);
  Move();
}

void HostCopies::On(const CopyPlaced& event) {
  const auto copy = parts_.names.FindModel(event.copy);
  const auto& status = event.host.status();
  Bytes bytes;
  if (status.ok()) bytes = Footprint(event.host->model().length(), event.host->weights().length());
  table_.LoadDone(copy, status, bytes, parts_.out.now());
  auto* model = parts_.models.Find(copy);
  if (absl::IsDataLoss(status)) parts_.out.Note("model-damaged", std::string(status.message()));
  if (!status.ok()) {
    // Damage is mended by the manager's copy, and scattered room by more room.
    const bool mends =
        absl::IsDataLoss(status) || absl::IsNotFound(status) || absl::IsResourceExhausted(status);
    if (Final(status) && !mends) Failed(copy, status);
  } else if (model != nullptr && table_.Usable(copy)) {
    model->copy = *event.host;
    model->adopted ? CameBack(copy, bytes, event.took) : parts_.models.Placed(copy);
  }
  Move();
}

void HostCopies::CameBack(const ModelNumber& copy, Bytes bytes, Duration took) {
  const auto* model = parts_.models.Find(copy);
  parts_.out.Note("model-loaded",
                  absl::StrCat("function '", model->function.key().name(), "': ", FormatBytes(bytes),
                               " from disk to the host region in ", FormatDuration(took)));
  parts_.scheduler.SetInRegion(copy, true);
  parts_.preparation.AskMissing(copy);
  parts_.decisions.CarryOut({});
}

// The callers that asked for its adoption learn that it failed. Requests for an adopted model wait on, for
// later tries.
void HostCopies::Failed(const ModelNumber& copy, const absl::Status& status) {
  const auto* model = parts_.models.Find(copy);
  if (model == nullptr) return;
  if (!model->adopted) return parts_.models.AdoptFailed(copy, status);
  parts_.out.Note("model-not-loaded",
                  absl::StrCat("function '", model->function.key().name(), "': ", status.message()));
}

}  // namespace troupe::node
