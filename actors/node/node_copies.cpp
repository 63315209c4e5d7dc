// The node controller: host copies, on disk and in the region. node::CacheTable decides, the cache moves.
#include "absl/strings/str_cat.h"
#include "actors/node/node_controller_actor.hpp"
#include "base/wire_status.hpp"

namespace troupe::actors {

namespace {

constexpr Bytes kPage = KiB(4);  // what the region gives out

Bytes Footprint(std::uint64_t model, std::uint64_t weights) {
  return std::max(AlignUp(Bytes(model), kPage) + AlignUp(Bytes(weights), kPage), kPage);
}

// False for what a later try may mend by itself.
bool Final(const absl::Status& status) {
  return !absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status);
}

absl::Status StatusOf(const absl::StatusOr<proto::HostModel>& host) {
  return host.ok() ? StatusIn(*host) : host.status();
}

}  // namespace

Bytes RegionBytesOf(const proto::FunctionRecord& function) {
  Bytes bytes = Footprint(function.model_bytes(), function.weights_bytes());
  for (const auto& packed : function.packed())
    bytes = std::max(bytes, Footprint(packed.model_bytes(), packed.weights_bytes()));
  return bytes;
}

void NodeController::MoveCopies() {
  if (!copies_.Busy()) return;
  const auto waited = [this](const std::string& model) { return scheduler_.Waits(model); };
  const auto actions = copies_.Decide(Now(this), waited);
  // Before anything else happens: nothing is dispatched for what leaves.
  for (const auto& [kind, model] : actions) {
    if (kind == node::CacheActionKind::kLeave || kind == node::CacheActionKind::kDrop)
      scheduler_.SetInRegion(model, false);
  }
  for (const auto& [kind, model] : actions) {
    if (kind == node::CacheActionKind::kDrop) DropCopy(model);
    if (kind == node::CacheActionKind::kFetch) FetchCopy(model);
    if (kind == node::CacheActionKind::kLoad) LoadCopy(model);
  }
  const auto due = copies_.NextDue();
  if (due >= copies_armed_) return;
  copies_armed_ = due;
  After(this, due - Now(this), MakeTick(kCopies));
}

void NodeController::FetchCopy(const std::string& digest) {
  proto::FetchModel fetch;
  if (const auto* model = models_.Find(digest)) *fetch.mutable_function() = model->function;
  Call<proto::HostModel>(this, calls_, cache_, options_.adopt_timeout, std::move(fetch),
                         [this, digest](const absl::StatusOr<proto::HostModel>& host) {
                           const auto status = StatusOf(host);
                           copies_.FetchDone(digest, status, Now(this));
                           if (!status.ok() && Final(status)) CopyFailed(digest, status);
                           MoveCopies();
                         });
}

void NodeController::LoadCopy(const std::string& digest) {
  proto::PlaceModel load;
  if (const auto* model = models_.Find(digest)) *load.mutable_function() = model->function;
  load.set_isolation_key(node::KeyOf(digest));
  Call<proto::HostModel>(this, calls_, cache_, options_.adopt_timeout, std::move(load),
                         [this, digest, began = Now(this)](const absl::StatusOr<proto::HostModel>& host) {
                           Loaded(digest, host, Now(this) - began);
                         });
}

void NodeController::DropCopy(const std::string& digest) {
  proto::DropModel drop;
  drop.set_model_digest(node::DigestOf(digest));
  drop.set_isolation_key(node::KeyOf(digest));
  send(cache_, std::move(drop));
}

void NodeController::Loaded(const std::string& digest, const absl::StatusOr<proto::HostModel>& host,
                            Duration took) {
  const auto status = StatusOf(host);
  Bytes bytes;
  if (status.ok()) bytes = Footprint(host->copy().model().length(), host->copy().weights().length());
  copies_.LoadDone(digest, status, bytes, Now(this));
  auto* model = models_.Find(digest);
  if (absl::IsDataLoss(status)) Note("model-damaged", std::string(status.message()));
  if (!status.ok()) {
    // Damage is mended by the manager's copy, scattered room by more of it.
    const bool mends =
        absl::IsDataLoss(status) || absl::IsNotFound(status) || absl::IsResourceExhausted(status);
    if (Final(status) && !mends) CopyFailed(digest, status);
  } else if (model != nullptr && copies_.Usable(digest)) {
    model->copy = host->copy();
    model->adopted ? CameBack(digest, bytes, took) : Placed(digest);
  }
  MoveCopies();
}

void NodeController::CameBack(const std::string& digest, Bytes bytes, Duration took) {
  const auto* model = models_.Find(digest);
  Note("model-loaded", absl::StrCat("function '", model->function.key().name(), "': ", FormatBytes(bytes),
                                    " from disk to the host region in ", FormatDuration(took)));
  scheduler_.SetInRegion(digest, true);
  for (node::GpuIndex gpu = 0; gpu < gpus_.size(); ++gpu)
    if (!model->PreparedBy(gpu, gpus_[gpu].last.incarnation())) Prepare(gpu, digest);
  Handle({});
}

// Whoever adopts it learns so; requests of one that was adopted wait on, for later tries.
void NodeController::CopyFailed(const std::string& digest, const absl::Status& status) {
  const auto* model = models_.Find(digest);
  if (model == nullptr) return;
  if (!model->adopted) return AdoptFailed(digest, status);
  Note("model-not-loaded", absl::StrCat("function '", model->function.key().name(), "': ", status.message()));
}

}  // namespace troupe::actors
